# sitar with a torch for the CPU. Without a command it runs the demo, and leaves runs and report in /data/runs:
#   docker build --tag sitar .
#   mkdir -p runs
#   docker run --rm --user "$(id -u)" --volume "$PWD/runs:/data/runs" sitar
#   docker run --rm --user "$(id -u)" --volume "$PWD:/data" sitar audit DIR
FROM python:3.13-slim

# torch and torchvision come from the same place: each torchvision fits one torch.
RUN pip install --no-cache-dir torch torchvision --index-url https://download.pytorch.org/whl/cpu

COPY pyproject.toml README.md LICENSE /sitar/
COPY src /sitar/src
RUN pip install --no-cache-dir "/sitar[ask,medical,onnx,parquet]"

# Who runs it with --user has an id without a name and a home here. So caches lie where everybody may write.
ENV HOME=/tmp USER=user
RUN useradd user && mkdir -p /data/runs && chown -R user /data
USER user
WORKDIR /data
ENTRYPOINT ["sitar"]
CMD ["demo"]
