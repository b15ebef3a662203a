"""What the page of the package on an index shows: README with links that lead somewhere there, and the addresses.

A build hook of hatchling. Links within the repository are written as addresses below TARE_REPOSITORY, at the tag of the
version; without that variable they stay as they are, and there are no addresses: good for all but a release.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\((?![a-z]+:|#)([^)\s]+)\)")
_PAGES = {"Documentation": "tree/{}/docs", "Changelog": "blob/{}/CHANGELOG.md"}


def with_addresses(text: str, repository: str, tag: str) -> str:
    """Markdown whose links into the repository are addresses: of a picture the file itself, else its page."""

    def address(found: re.Match[str]) -> str:
        picture, label, path = found.groups()
        return f"{picture}[{label}]({repository}/{'raw' if picture else 'blob'}/{tag}/{path})"

    return _LINK.sub(address, text)


class PackagePage(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["urls"] = {}
        if repository := os.environ.get("TARE_REPOSITORY", "").rstrip("/"):
            tag = f"v{metadata['version']}"
            text = with_addresses(text, repository, tag)
            pages = {name: f"{repository}/{path.format(tag)}" for name, path in _PAGES.items()}
            metadata["urls"] = {"Source": repository, "Issues": f"{repository}/issues", **pages}
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
