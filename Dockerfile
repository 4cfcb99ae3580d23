# One image for every service of docker-compose.yml; the command decides which part of the system it is.

FROM python:3.12-slim AS build
# More options for pip. PyPI's torch for Linux x86-64 carries CUDA (gigabytes): on machines without a GPU build with
#   docker compose build --build-arg PIP_ARGS="--extra-index-url <PyTorch's index of CPU builds>"
ARG PIP_ARGS=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /venv
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
# The dependencies in a layer of their own, so that a change of our code does not install torch again.
RUN mkdir producers workers query \
    && touch producers/__init__.py workers/__init__.py query/__init__.py \
    && /venv/bin/pip install ${PIP_ARGS} -c constraints.txt '.[embedded]'
COPY producers producers
COPY workers workers
COPY query query
RUN /venv/bin/pip install ${PIP_ARGS} --no-deps --force-reinstall .

FROM python:3.12-slim
RUN useradd --system --uid 10001 --create-home recall && install -d -o recall -g recall /data
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HF_HUB_OFFLINE=1 \
    TOKENIZERS_PARALLELISM=false \
    SCOPE_RECALL_DATA_DIR=/data
USER recall
WORKDIR /home/recall
# Owned by the user above, and so is a named volume that is mounted here for the first time.
VOLUME /data
ENTRYPOINT ["scope-recall"]
