import pytest

from tare.errors import StudyError
from tare.parts.find import KINDS, find, names


def test_every_file_is_a_part_of_its_kind_under_the_name_of_the_file():
    for kind, protocol in KINDS.items():
        assert names(kind)
        for name in names(kind):
            part = find(kind, name)
            assert issubclass(part, protocol)
            assert part.part_name() == name
            assert part.__doc__, f"{kind}/{name}.py says nothing of itself"


def test_an_unknown_name_is_answered_with_the_nearest_right_one():
    with pytest.raises(StudyError) as caught:
        find("platforms", "dokcer")
    assert "there is no platform 'dokcer'." in str(caught.value)
    assert "Did you mean 'docker'?" in str(caught.value)
    assert "bare" in str(caught.value)
