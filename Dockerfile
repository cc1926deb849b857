# One image for every role: `docker run n4n data-plane`, `… control-plane`, `… prober`, `… migrate`. docker-compose.yml shows them together.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv /opt/n4n
WORKDIR /src
COPY requirements.lock ./
RUN /opt/n4n/bin/python -m pip install --require-hashes --only-binary :all: -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY n4n ./n4n
COPY control_plane ./control_plane
COPY data_plane ./data_plane
COPY health_prober ./health_prober
COPY migrations ./migrations
RUN /opt/n4n/bin/python -m pip install --no-deps --no-build-isolation . \
 && /opt/n4n/bin/python -m pip uninstall --yes setuptools pip

FROM python:${PYTHON}-slim
RUN python -m pip uninstall --yes --root-user-action ignore pip \
 && groupadd --system --gid 10001 n4n \
 && useradd --system --uid 10001 --gid n4n --home-dir /var/lib/n4n --create-home --shell /usr/sbin/nologin n4n
COPY --from=build /opt/n4n /opt/n4n
COPY deploy/healthcheck.py /opt/n4n/healthcheck.py
ENV PATH=/opt/n4n/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    N4N_DATA_DIR=/var/lib/n4n N4N_HOST=0.0.0.0 N4N_ADMIN_HOST=0.0.0.0
WORKDIR /var/lib/n4n
VOLUME /var/lib/n4n
USER 10001:10001
EXPOSE 8080 9400 9401 9402
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 CMD ["python", "/opt/n4n/healthcheck.py"]
ENTRYPOINT ["n4n"]
CMD ["--help"]
