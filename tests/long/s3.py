"""spark/verify.py and spark/generate.py on a local S3 server, through Hadoop's s3a.

usage: python -m tests.long.s3

The server is moto's, from PyPI, in an environment of its own; hadoop-aws and the AWS bundle (558
MB) come by Maven and stay in the cache.  Two planted runs are put into a bucket as objects: the
sound one is valid (0), the one with a loss invalid (1), by the verdict that is in the bucket then,
and a bucket that does not exist is one line (3).  Then a history that generate.py writes there is
verified there.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from highwater.maven import Artifact, cache_dir, fetch_jars
from highwater.verdict import runner
from highwater.verdict.by_spark import spark_submit
from tests.planted.stories import PLANTS
from tests.planted.story import write
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
JARS = (
    Artifact("org.apache.hadoop", "hadoop-aws", "3.4.1"),
    Artifact("software.amazon.awssdk", "bundle", "2.24.6"),
)
"""Of the Hadoop that PySpark brings, and the SDK that this Hadoop was built with."""
SERVER = ("moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5")
BUCKET = "highwater"
PUT = """
import pathlib, sys, boto3
endpoint, bucket, folder, prefix = sys.argv[1:]
s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1",
                  aws_access_key_id="test", aws_secret_access_key="test")
s3.create_bucket(Bucket=bucket)
root = pathlib.Path(folder)
for file in root.rglob("*"):
    if file.is_file():
        s3.upload_file(str(file), bucket, f"{prefix}/{file.relative_to(root)}")
"""
"""Puts a folder into a bucket."""
GET = """
import sys, boto3
endpoint, bucket, key = sys.argv[1:]
s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1",
                  aws_access_key_id="test", aws_secret_access_key="test")
sys.stdout.write(s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode())
"""


def environment(folder: Path) -> Path:
    """Python with the server and a client of it."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *SERVER], check=True)
    return python


@contextmanager
def s3_server(python: Path, log: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(python.parent / "moto_server"), "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def answers() -> bool:
        if process.poll() is not None:
            raise AssertionError(f"the S3 server ended: {log.read_text()[-1000:]}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        eventually(answers, "the S3 server answers", log.read_text)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def submit(endpoint: str, jars: Path, *job: str) -> subprocess.CompletedProcess[str]:
    spark = spark_submit.find()
    settings = {
        "fs.s3a.endpoint": endpoint,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": "test",
        "fs.s3a.secret.key": "test",
    }
    command = [str(spark.home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--jars", ",".join(str(jars / artifact.jar) for artifact in JARS)]
    command += ["--driver-java-options", spark_submit.QUICK_JAVA]
    for name, value in settings.items():
        command += ["--conf", f"spark.hadoop.{name}={value}"]
    return subprocess.run(
        [*command, *job],
        cwd=ROOT,
        env=spark.environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def ends_with(done: subprocess.CompletedProcess[str], code: int) -> None:
    if done.returncode != code:
        sys.exit(f"s3: ended with {done.returncode}, not {code}: {done.stdout}{done.stderr}")


def planted_runs(endpoint: str, jars: Path, python: Path, work: Path) -> None:
    for names, code in ((["clean"], 0), (["clean", "lost-at-the-end"], 1)):
        run, prefix = work / names[-1], f"runs/{names[-1]}"
        write(run, [plant for plant in PLANTS if plant.name in names])
        subprocess.run([python, "-c", PUT, endpoint, BUCKET, str(run), prefix], check=True)
        began = time.monotonic()
        ends_with(submit(endpoint, jars, "spark/verify.py", f"s3a://{BUCKET}/{prefix}"), code)
        took = time.monotonic() - began
        got = [str(python), "-c", GET, endpoint, BUCKET, f"{prefix}/verdict.json"]
        there = json.loads(subprocess.run(got, check=True, capture_output=True, text=True).stdout)
        here = runner.run(run, "duckdb", lambda _: None)
        differ = [i for i, c in here.checks.items() if there["checks"][i]["status"] != c.status]
        if there["verdict"] != here.verdict or differ:
            sys.exit(f"s3: {there['verdict']}, and {here.verdict} by DuckDB: {differ}")
        print(f"s3a://{BUCKET}/{prefix}: {there['verdict']} in {took:.0f} s")


def generated(endpoint: str, jars: Path) -> None:
    place = f"s3a://{BUCKET}/runs/generated"
    ends_with(submit(endpoint, jars, "spark/generate.py", place, "--operations", "20000"), 0)
    done = submit(endpoint, jars, "spark/verify.py", place)
    ends_with(done, 1)
    print(f"{place}: {done.stdout.splitlines()[-1]}")


def main(arguments: Sequence[str]) -> None:
    jars = cache_dir() / "s3a-3.4.1"
    fetch_jars("Hadoop's s3a", JARS, jars, alone=True)
    with tempfile.TemporaryDirectory(prefix="highwater-s3-") as work:
        folder = Path(work)
        python = environment(folder / "moto")
        with s3_server(python, folder / "s3.log") as endpoint:
            planted_runs(endpoint, jars, python, folder)
            nowhere = submit(endpoint, jars, "spark/verify.py", "s3a://nowhere/runs/7")
            ends_with(nowhere, 3)
            print(next(line for line in nowhere.stderr.splitlines() if "verify:" in line))
            if "short" not in arguments:
                generated(endpoint, jars)
    print("s3a: each run in the bucket has the verdict that DuckDB gives it here")


if __name__ == "__main__":
    main(sys.argv[1:])
