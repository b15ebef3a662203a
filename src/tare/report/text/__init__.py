"""What each verb shows in a terminal."""
