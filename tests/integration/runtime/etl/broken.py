"""A submodule that cannot be imported."""

import not_installed_here  # type: ignore[import-not-found]  # noqa: F401
