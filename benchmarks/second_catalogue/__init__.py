"""A catalogue of causes that settled public threads, planted blind: by somebody who had not read tare's own causes."""
