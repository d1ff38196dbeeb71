"""The page of a run: one HTML file with everything inside, ready to be mailed, archived or opened
from disk.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import jinja2

from highwater.verdict import catalog
from highwater.verdict.contracts.tables import rules_folder
from highwater.verdict.report import anomaly_picture, app_data
from highwater.verdict.report.data import gather
from highwater.verdict.report.timeline import draw

__all__ = ["write"]


def write(run_dir: Path, out: Path | None = None) -> Path:
    """Writes RUN/report.html from the run's folder and its verdict.json; raises RunUnreadable."""
    data = app_data.gather(run_dir) if app_data.is_app(run_dir) else gather(run_dir)
    checks = catalog.checks(rules_folder() if data.flow else None)
    info = {"run": run_dir.name, "started": "", "again": "", "versions": {}} | data.info
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("page.html.j2").render(
        data=data,
        info=info,
        verdict=data.verdict,
        timeline=draw(data),
        about=defaultdict(str, {check.id: check.about for check in checks}),
        anomaly_picture=anomaly_picture.draw(data.anomaly, data) if data.anomaly else "",
    )
    target = out or run_dir / "report.html"
    temporary = target.with_name(target.name + ".tmp")
    temporary.write_text(page, encoding="utf-8")
    temporary.replace(target)
    return target
