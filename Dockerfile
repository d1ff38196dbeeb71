# A Highwater broker.  Configured like Apache Kafka's image: by KAFKA_* variables, or by a file at
# /mnt/shared/config/server.properties; the variables win.
#
#   docker build -t highwater/broker . && docker run --rm -e KAFKA_ZOOKEEPER_CONNECT=zookeeper:2181 highwater/broker
#
# The base image needs python3 with venv, and nothing else: where no registry can be reached, scripts/docker-engine
# builds one.
ARG BASE_IMAGE=python:3.13-slim

# Machine code for the modules that read records; HIGHWATER_COMPILE=0 leaves it, with 1 it must not fail.
FROM ${BASE_IMAGE} AS compiled
ARG HIGHWATER_COMPILE
COPY docker/compiler /compiler
RUN sh /compiler/compile install
COPY highwater /source/highwater
COPY broker /source/broker
COPY controller /source/controller
RUN sh /compiler/compile run /source /compiled

FROM ${BASE_IMAGE} AS build
RUN python3 -m venv /opt/highwater
COPY docker/broker/requirements.txt /tmp/requirements.txt
RUN /opt/highwater/bin/python -m pip install -q --no-cache-dir --disable-pip-version-check --require-hashes --no-deps \
      -r /tmp/requirements.txt \
    && /opt/highwater/bin/python -m pip uninstall -q -y pip \
    && /opt/highwater/bin/python -c "import sysconfig; print('/opt/highwater/app', \
      file=open(sysconfig.get_path('purelib') + '/highwater.pth', 'w'))"
COPY highwater /opt/highwater/app/highwater
COPY broker /opt/highwater/app/broker
COPY controller /opt/highwater/app/controller
COPY --from=compiled /compiled /opt/highwater/app
# Byte code is made here, because the user that runs it may not write here.
RUN /opt/highwater/bin/python -m compileall -q -j 0 /opt/highwater/app

FROM ${BASE_IMAGE}
RUN useradd --uid 1000 --home-dir /var/lib/kafka --create-home kafka \
    && mkdir -p /var/lib/kafka/data /etc/kafka/secrets /mnt/shared/config && chown -R kafka /var/lib/kafka
COPY --from=build /opt/highwater /opt/highwater
ENV PATH=/opt/highwater/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    KAFKA_LOG_DIRS=/var/lib/kafka/data
USER kafka
WORKDIR /var/lib/kafka
VOLUME /var/lib/kafka/data
EXPOSE 9092
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/highwater/bin/python", "-I", "-u", "-m", "highwater.broker"]
