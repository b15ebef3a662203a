"""The built-in programs: training, inference, LoadGen, idling."""
