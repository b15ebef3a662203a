"""`tare watch`: what a store holds and what runs now, for a browser and for a terminal. It only ever reads."""
