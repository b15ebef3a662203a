"""The load that tare makes for a server: a client (client), when requests come (arrivals), and the program (driver)."""
