"""What can be plugged in, by kind: a file's name is the name in the study; SHARED of a kind lists files of several."""
