"""Every case, by the id of its claim."""

from __future__ import annotations

from collections.abc import Mapping

from claim_case import Case
from claim_cases_s0 import S0
from claim_cases_s1 import S1
from claim_cases_s2 import S2
from claim_cases_s3 import S3
from claim_cases_s4 import S4

CASES: Mapping[str, Case] = S0 | S1 | S2 | S3 | S4
