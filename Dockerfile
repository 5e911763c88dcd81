# sitar with a torch for the CPU. Without a command it runs the demo, and leaves runs and report in /work/runs:
#   docker build --tag sitar .
#   docker run --rm --volume "$PWD/runs:/work/runs" sitar
#   docker run --rm --volume "$PWD:/work" sitar audit DIR
FROM python:3.13-slim

# torch and torchvision come from the same place: each torchvision fits one torch.
RUN pip install --no-cache-dir torch torchvision --index-url https://download.pytorch.org/whl/cpu

COPY pyproject.toml README.md LICENSE /sitar/
COPY src /sitar/src
RUN pip install --no-cache-dir "/sitar[ask,medical,parquet]"

RUN useradd --create-home user && mkdir -p /work/runs && chown -R user /work
USER user
WORKDIR /work
ENTRYPOINT ["sitar"]
CMD ["demo"]
