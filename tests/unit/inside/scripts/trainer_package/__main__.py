"""`python -m trainer_package`."""

import plain_loop
import small

print(plain_loop.__name__, small.exact(plain_loop.loss))
