"""Draw a workflow as SVG or Mermaid."""
