"""What the papers add to tare (see `tare.base.rooms`)."""

OFFERS = {
    "pages": {"papers": "tare.papers.verbs:each_paper_once"},
    "sections": {"claims": "tare.papers.pages.claims:claims_figures"},
    "verbs": {"papers": "tare.papers.verbs:command", "list studies": "tare.papers.verbs:studies"},
}
VERBS = {"papers": ("Machine", "studies, claims, tables of the five papers, with your results.")}
READING = ("list studies", "papers claims", "papers studies", "papers tables")
