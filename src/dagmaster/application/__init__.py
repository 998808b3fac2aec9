"""Everything a person or program can ask of dagmaster, without click, HTTP or HTML."""
