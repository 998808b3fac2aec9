"""Which files handlers read: rules of GDAL drivers, archives, directories, references to other files."""
