"""The documentation site: pages of `docs/<language>/`, filled from code and data, built by mkdocs."""
