"""What `import package` imports of itself, by its files: always, under a condition, and never at import."""

from __future__ import annotations

from pathlib import Path

import pytest
from elves import no_engine

from envkit.image.audit.imports import always
from envkit.image.tree import open_tree

FILES = {
    "site/pkg/__init__.py": (
        "import os, pkg.plain, pkg.broken, other.inner\n"
        "from . import beside\n"
        "from .deep.down import name, another\n"
        "from .deep.stars import *\n"
        "if os.environ:\n    import pkg.asked\nelse:\n    from pkg import asked_not\n"
        "if TYPE_CHECKING:\n    import pkg.for_types\n"
        "if sys.platform == 'win32':\n    import pkg.for_windows\n"
        "try:\n    import pkg.needed\nexcept ImportError as error:\n    raise RuntimeError from error\n"
        "else:\n    import pkg.after\nfinally:\n    import pkg.at_last\n"
        "try:\n    import pkg.optional\nexcept (ValueError, ImportError):\n    pass\n"
        "try:\n    import pkg.any_fault\nexcept:\n    pass\n"
        "try:\n    import pkg.typed\nexcept KeyError:\n    pass\n"
        "with place():\n    import pkg.in_with\n"
        "class A:\n    import pkg.in_class\n"
        "def late():\n    import pkg.in_function\n"
    ),
    "site/pkg/broken.py": "import pkg.never(\n",
    "site/pkg/plain.py": "import pkg.from_plain\n",
    "site/pkg/deep/__init__.py": "",
    "site/pkg/deep/down.py": "from .. import of_the_top\nfrom . import sibling\nfrom ..deep import again\n",
    "lib/other/__init__.py": "import other.own, pkg.through_other\n",
    "lib/other/inner.py": "import third\n",
    "lib/third.py": "import fourth\n",
}
ALWAYS = (
    "plain broken beside deep deep.down deep.down.name deep.down.another deep.stars asked asked_not needed after "
    "at_last typed in_with in_class from_plain of_the_top deep.sibling deep.again"
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_what_a_package_always_imports_of_itself(place: Path) -> None:
    with open_tree(str(place), no_engine, [].append) as tree:
        assert always(tree, "/site", "pkg") == {"pkg", *(f"pkg.{name}" for name in ALWAYS.split())}
        assert always(tree, "/site", "none") == {"none"}


def test_packages_of_other_folders_are_followed_where_there_are_any(place: Path) -> None:
    with open_tree(str(place), no_engine, [].append) as tree:
        found = always(tree, "/site", "pkg", ("/nowhere", "/lib"))
    outside = {"os", "other", "other.inner", "other.own", "third", "fourth", "pkg.through_other"}
    assert found == {"pkg", *(f"pkg.{name}" for name in ALWAYS.split()), *outside}
