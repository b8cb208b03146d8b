# The program as an image: one for every service of docker-compose.yml and for agents.
#   docker build -t sdfstream:local .
# The base by digest (docs/pilot.md says how it is checked); wheels only, each pinned by hash; nothing that builds or installs is left in the result.
FROM python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1
RUN python -m venv --without-pip /opt/sdfstream
COPY requirements-run.lock /src/
RUN python -m pip --python /opt/sdfstream/bin/python install \
      --require-hashes --only-binary :all: -r /src/requirements-run.lock
# the package is plain Python and data: copied where an installer would put it
COPY sdfstream /opt/sdfstream/lib/python3.11/site-packages/sdfstream
RUN printf '#!/opt/sdfstream/bin/python\nfrom sdfstream.cli import main\nraise SystemExit(main())\n' \
      >/opt/sdfstream/bin/sdfstream \
 && chmod 755 /opt/sdfstream/bin/sdfstream \
 && /opt/sdfstream/bin/python -m compileall -q /opt/sdfstream/lib \
 && /opt/sdfstream/bin/sdfstream --version

FROM python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d
RUN python -m pip uninstall -qy pip setuptools wheel \
 && rm -rf /usr/local/lib/python3.11/ensurepip \
 && groupadd --gid 10001 sdfstream \
 && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin sdfstream \
 # a named volume takes over owner and mode of the folder that it is mounted on
 && install -d -o 10001 -g 10001 -m 0750 /data
COPY --from=build /opt/sdfstream /opt/sdfstream
ENV PATH=/opt/sdfstream/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /data
ENTRYPOINT ["sdfstream"]
CMD ["--help"]
