#!/usr/bin/env python3
"""fetch_jars.py COORDINATES FOLDER: an artifact with all that it needs, by spark-submit's own Ivy.

Java has a trust store of its own, made of the certificates that Debian ships.  Where the system's
bundle holds more (a company's proxy), these are added to a copy of the store for this one download.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
SHIPPED = Path("/usr/share/ca-certificates")
JAVA_STORE = Path("/etc/ssl/certs/java/cacerts")


def certificates(text: str) -> set[str]:
    return {"".join(found.split()) + "\n" + found for found in CERTIFICATE.findall(text)}


def trust(work: Path) -> list[str]:
    """Java options that make it trust what the system trusts."""
    if not (BUNDLE.exists() and JAVA_STORE.exists()):
        return []
    shipped = "".join(path.read_text() for path in sorted(SHIPPED.rglob("*.crt")))
    known = {c.partition("\n")[0] for c in certificates(shipped)}
    more = sorted(c for c in certificates(BUNDLE.read_text()) if c.partition("\n")[0] not in known)
    store = work / "trust"
    shutil.copy(JAVA_STORE, store)
    for number, certificate in enumerate(more):
        command = ["keytool", "-importcert", "-noprompt", "-storepass", "changeit"]
        subprocess.run(
            [*command, "-keystore", str(store), "-alias", f"further-{number}"],
            input=certificate.split("\n", 1)[1],
            text=True,
            check=True,
            capture_output=True,
        )
    return [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStorePassword=changeit"]


def main(coordinates: str, folder: str) -> int:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "nothing.py").write_text("")
        command = ["spark-submit", "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
        command += ["--conf", f"spark.jars.ivy={work}/ivy", "--packages", coordinates]
        command.append(f"{work}/nothing.py")
        environment = {**os.environ, "JAVA_TOOL_OPTIONS": " ".join(trust(work))}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stderr[-6000:], file=sys.stderr)
            return 1
        for jar in sorted((work / "ivy" / "jars").glob("*.jar")):
            plain = jar.name.partition("_")[2]  # Ivy puts the group in front, Spark does not
            if not (Path(folder) / plain).exists():
                print(plain)
                shutil.copy(jar, Path(folder) / plain)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
