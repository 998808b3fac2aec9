"""Which files handlers read: the rules of GDAL drivers, archives, directories, and references to other files."""
