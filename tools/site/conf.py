"""Sphinx's settings; __main__.py says where the pages come from."""

project = "fmha"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
html_theme = "furo"
html_title = "fmha"
html_copy_source = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
default_role = "code"  # docstrings have single backticks
