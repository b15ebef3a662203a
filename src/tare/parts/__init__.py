"""What can be plugged in, one file each: the file's name is the name in the study."""
