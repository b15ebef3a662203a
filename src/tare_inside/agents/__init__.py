"""What runs on a device or in a virtual machine and does what the controller asks."""
