"""DLRM (Naumov et al. 2019) in the size of MLPerf's for the Criteo Kaggle click log."""

TITLE = "DLRM"
KIND = "clicks"
INPUT = (39,)  # 13 numbers, 26 categories
CLASSES = 1
PARAMS = 540677217
FLOPS = 487649
NUMBERS = 13

_ROWS = (  # how many values each of the 26 categories of the Kaggle log has
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
_BOTTOM, _TOP = (512, 256, 64, 16), (512, 256, 1)


def table_rows(scale=1.0):
    """The rows of each table, in the order of the categories; a scale leaves the smallest ones as they are."""
    from tare_inside.layers import checked

    checked(scale)
    return tuple(min(rows, max(4, int(rows * scale + 0.5))) for rows in _ROWS)


def build(classes=CLASSES, scale=1.0):
    """The network, with torch's default initialisation; `scale` is the share of the tables' rows."""
    from tare_inside.layers import Recommender

    if classes != CLASSES:
        raise ValueError("DLRM gives one score, how likely a click is: 1 class, not {}.".format(classes))
    return Recommender(NUMBERS, table_rows(scale), _BOTTOM, _TOP)
