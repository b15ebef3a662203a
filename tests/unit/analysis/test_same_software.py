from __future__ import annotations

from tare.analysis.parity import compared, is_same

SIDE = {
    "python": {"version": "3.11.7", "executable": "/usr/bin/python3"},
    "libc": "glibc 2.36",
    "torch": {"version": "2.13.0", "threads": 2},
    "process": {"Seccomp": "0"},
}


def other(**changed: object) -> dict[str, object]:
    return {**SIDE, **changed}


def test_equal_sides_are_the_same():
    lines = compared(SIDE, SIDE)

    assert is_same(lines)
    assert all(line.same for line in lines)


def test_where_the_program_lies_and_what_the_platform_is_do_not_matter():
    lines = compared(SIDE, other(python={"version": "3.11.7", "executable": "/opt/py"}, process={"Seccomp": "2"}))

    assert is_same(lines)
    assert {line.key for line in lines if not line.same} == {"python.executable", "process.Seccomp"}


def test_another_torch_or_none_matters_and_comes_first():
    for torch in ({"version": "2.12.0", "threads": 2}, {}):
        lines = compared(SIDE, other(torch=torch))
        assert not is_same(lines)
        assert lines[0].key.startswith("torch.")
        assert lines[0].matters


def test_a_side_that_says_nothing_proves_nothing():
    assert not is_same(compared({}, {}))
