"""Lines that people run, from public repositories and threads, read with the help of the engine's own command.

What a shell puts in (`$PWD`, `$(id -u)`) stands here as it does after that.
"""

from __future__ import annotations

import shlex

import pytest

from tare.base.errors import StudyError
from tare.base.host import LocalHost
from tare.drivers.containers.line import Flag, Line, is_line, options, parsed

# Where it is from, the line, its image, its command, and how many options it has.
DOCKER = (
    ("cnoam/technion-iem-ds_lab run_docker.sh",
     "docker run -d --mount type=bind,source=/home/me/data,target=/app/data,readonly "
     "--mount type=bind,source=/home/me/data/logs,target=/logs -p80:8000 --restart unless-stopped server",
     "server", "", 5),
    ("cnoam/technion-iem-ds_lab run_docker.sh, before",
     "docker run -d --mount type=bind,source=/home/me/data,target=/app/data,readonly -p80:8000 --user nobody "
     "--restart unless-stopped server", "server", "", 5),
    ("ajangi/portainer-smaple run.sh",
     "docker run -d -p 8091:8000 -p 9091:9000 --name=portainer --restart=always "
     "-v /var/run/docker.sock:/var/run/docker.sock -v portainer_data:/data portainer/portainer-ce",
     "portainer/portainer-ce", "", 7),
    ("ryuji0123/cv_dnn docker/run.sh",
     "docker run -dit --gpus all -v /work:/workspace -p 8888:8888 --name cv --rm --shm-size=2g cv_dnn",
     "cv_dnn", "", 9),
    ("st24hour/dino_sm docker1.sh",
     "docker run --gpus all --shm-size=256g --ulimit memlock=-1 --ulimit stack=67108864 -it --rm --pid=host "
     "-v /w:/w -w /w -v /etc/localtime:/etc/localtime:ro -v /etc/passwd:/etc/passwd:ro -v /etc/group:/etc/group:ro "
     "--name js_9 -v /shared:/shared/ st24hour/pytorch:1.12.1_SM sh train1.sh",
     "st24hour/pytorch:1.12.1_SM", "sh train1.sh", 15),
    ("NapoleonZero/training run.sh",
     "docker run -it --rm --gpus all --runtime=nvidia --ipc=host -p 8888:8888 "
     "--env CUBLAS_WORKSPACE_CONFIG=:4096:8 training", "training", "", 8),
    ("RobScheidegger/grrt-star scripts/dev.sh",
     "docker run -it --rm --runtime=nvidia -e DISPLAY=:0 -v /tmp/.X11-unix:/tmp/.X11-unix "
     "-v /home/me/.Xauthority:/root/.Xauthority --privileged --net=host -v /w:/workplace grrt_container bash",
     "grrt_container", "bash", 10),
    ("FlorisE/ClearCompare implicit_depth/demo/run.sh",
     "sudo docker run --gpus 1 -it -v /tmp/.X11-unix:/tmp/.X11-unix -e DISPLAY=:0 "
     "-e NVIDIA_DRIVER_CAPABILITIES=all -e NVIDIA_VISIBLE_DEVICES=all --privileged --device=/dev:/dev -h box "
     "implicit_depth", "implicit_depth", "", 10),
    ("ivan-serrano-hernandez/Bachelor-Thesis launch_container.sh",
     'docker run --gpus all -it --privileged -e DISPLAY=:0 --runtime=nvidia --net=host '
     '--volume="/home/me/.Xauthority:/root/.Xauthority:rw" -v /tmp/.X11-unix:/tmp/.X11-unix "thesis"',
     "thesis", "", 9),
    ("uavaustin/target-finder-model Dockerfiles/run.sh",
     "sudo docker run --runtime=nvidia -ti --net=host --ipc=host -e DISPLAY=:0 -v /tmp/.X11-unix:/tmp/.X11-unix "
     "-v /w:/host/mounted/ uavaustin/target-finder-model-env:latest /bin/bash",
     "uavaustin/target-finder-model-env:latest", "/bin/bash", 8),
    ("tuncozanaydin/.work rundocker.sh", "docker run --name test --rm --user 1000:1000 -it test", "test", "", 5),
    ("veltzer/demos-docker exercises/volume_data/run.sh",
     'docker run -it --user "1000:1000" --volume "/w/data:/data" "volume_data"', "volume_data", "", 4),
    ("rk-7474/spike-rt docker.sh",
     'sudo docker run --rm -it -v /w:/w -w /w -u "1000:1000" -v /etc/passwd:/etc/passwd:ro '
     '-v /etc/group:/etc/group:ro ghcr.io/spike-rt/spike-rt:rich /bin/bash',
     "ghcr.io/spike-rt/spike-rt:rich", "/bin/bash", 8),
    ("selodev/docker-rootless run.sh",
     'docker run -it --user 1000:1000 --workdir="/home/me" --volume="/etc/group:/etc/group:ro" '
     '--volume="/etc/passwd:/etc/passwd:ro" --volume="/etc/shadow:/etc/shadow:ro" coder:latest /bin/bash',
     "coder:latest", "/bin/bash", 7),
    ("Jimmy-Xu/hyper-tool docker/ubuntu-sysbench/readme.md",
     "docker run -it --name test_cpu --cpuset-cpus=0,1 --memory=2048m ubuntu:sysbench /bin/bash",
     "ubuntu:sysbench", "/bin/bash", 5),
    ("LearningOS/Performance-Anomaly-Detection start-ubuntu.sh",
     "docker run --rm -it -v /w:/root/project --cpus=1 --memory=4g --memory-swap=4g --device-read-bps /dev/sda:100mb "
     "--device-write-bps /dev/sda:100mb --device-read-iops /dev/sda:1000 --device-write-iops /dev/sda:1000 "
     "--privileged --name exp perf_exp bash", "perf_exp", "bash", 13),
    ("shriramrseee/ds256-jan2019 project/edge/start_container.sh",
     "docker run -t -d --ulimit nofile=500:500 -d -v /sys/fs/cgroup:/sys/fs/cgroup:ro -v /tmp/log:/tmp/log --cpus=4 "
     "--privileged --cap-add=NET_ADMIN --cap-add=NET_RAW --hostname edge-1 --name edge1 graphos", "graphos", "", 12),
    ("suryarajasekaran/DiscoverX metrics/telegraf/run.sh",
     "docker run -d --name=telegraf --ulimit nofile=65536:65536 -p 8083:8083 "
     "-v /var/run/docker.sock:/var/run/docker.sock -v /w/telegraf.conf:/etc/telegraf/telegraf.conf:ro telegraf",
     "telegraf", "", 6),
    ("axiu8888/webssh docker/docker_run.sh",
     "docker run -d --restart always -p 5022:22 --log-driver json-file --log-opt max-file=2 --log-opt max-size=100m "
     "-e TZ=Asia/Shanghai -e port=22 --name webssh webssh", "webssh", "", 9),
    ("kaltepeter/notes docker.md",
     "docker container run --name api-gateway --rm --link config-service:ali-config-service api-gateway:latest",
     "api-gateway:latest", "", 3),
    ("akoudri/docker-training launch-nginx.sh",
     'docker run -ti -d --name nginx-container --restart unless-stopped '
     '--health-cmd="curl -f http://localhost/ || exit 1" --health-interval=30s --health-timeout=10s '
     "--health-retries=3 --health-start-period=5s --log-driver=json-file --log-opt max-size=10m "
     "--log-opt max-file=3 nginx", "nginx", "", 13),
    ("srcmesh-workshop/docker-workshop day1/hands-on-01/references.md",
     'docker container run -d --name me -p 8081:8080 -v /w/index.html:/usr/share/nginx/html/index.html '
     '-v /w/default.conf:/etc/nginx/conf.d/default.conf --health-cmd "curl -f http://localhost:8080 || exit 1" '
     "--health-start-period=10s --health-interval=5s --health-timeout=3s --health-retries=3 nginx:alpine",
     "nginx:alpine", "", 10),
    ("docker/for-linux#870, plain",
     "docker run --rm ubuntu:16.04 bash -c 'time for i in {1..1000000};do echo $[i*i] >/dev/null; done'",
     "ubuntu:16.04", "bash -c 'time for i in {1..1000000};do echo $[i*i] >/dev/null; done'", 1),
    ("docker/for-linux#870, privileged",
     "docker run --rm --privileged ubuntu:16.04 bash -c 'time for i in {1..1000000};do echo $[i*i] >/dev/null; done'",
     "ubuntu:16.04", "bash -c 'time for i in {1..1000000};do echo $[i*i] >/dev/null; done'", 2),
    ("docker/for-linux#870, seccomp",
     "docker run --rm --security-opt seccomp=unconfined ubuntu:16.04 bash -c 'time true'",
     "ubuntu:16.04", "bash -c 'time true'", 2),
    ("moby/moby#42074",
     r"docker run --security-opt seccomp=unconfined --privileged --rm centos:7 \time -v python test.py",
     "centos:7", "time -v python test.py", 3),
    ("NVlabs/nvdiffrec#52",
     "docker run --gpus device=5 -v /home/wsr/workspace/nvdiffrec-main:/usr/src/rongtest -w /usr/src/rongtest "
     "nvdiffrec:v1 python tra--config configs/bob.json",
     "nvdiffrec:v1", "python tra--config configs/bob.json", 3),
    ("intel/llm-scaler#48",
     "sudo docker run -it --rm -p 7860:7860 --device /dev/dri -v /dev/dri/by-path:/dev/dri/by-path "
     "-v /home/cue/Downloads/:/models --ipc=host --name vllm_qwen2.5vl --entrypoint bash "
     "intelanalytics/ipex-llm-serving-xpu:0.8.3-b22 -c 'cd /models && VLLM_USE_V1=1 python3 -m vllm'",
     "intelanalytics/ipex-llm-serving-xpu:0.8.3-b22", "-c 'cd /models && VLLM_USE_V1=1 python3 -m vllm'", 10),
    ("vllm-project/vllm#10322",
     "docker run --name=open-webui --env=ENABLE_RAG_WEB_SEARCH=true --env=RAG_WEB_SEARCH_ENGINE=duckduckgo "
     "--env=OPENAI_API_KEY=aaaaa --env='IMAGE_GENERATION_MODEL=Stable Diffusion 3 - Medium' "
     "--volume=/data/open-webui-volumes:/app/backend/data -p 3000:8080 --restart=always "
     "ghcr.io/open-webui/open-webui:main", "ghcr.io/open-webui/open-webui:main", "", 8),
    ("h2oai/h2ogpt#295",
     'CUDA_VISIBLE_DEVICES=0,1 docker run --gpus all --shm-size 2g -e NCCL_SHM_DISABLE=1 '
     '-e TRANSFORMERS_CACHE="/.cache/" -p 6112:80 -v /home/me/.cache:/.cache/ -v /w/data:/data '
     "ghcr.io/huggingface/text-generation-inference:0.8.2 --model-id h2oai/h2ogpt-oasst1-512-12b --sharded=true "
     "--num-shard=2", "ghcr.io/huggingface/text-generation-inference:0.8.2",
     "--model-id h2oai/h2ogpt-oasst1-512-12b --sharded=true --num-shard=2", 7),
    ("h2oai/h2ogpt#295, its 40B",
     'sudo docker run --gpus all --shm-size 2g -e NCCL_SHM_DISABLE=1 -e TRANSFORMERS_CACHE="/.cache/" -p 6112:80 '
     "-v /home/me/.cache:/.cache/ -v /w/data:/data ghcr.io/huggingface/text-generation-inference:0.8.2 "
     "--model-id h2oai/h2ogpt-oasst1-falcon-40b --num-shard=8",
     "ghcr.io/huggingface/text-generation-inference:0.8.2",
     "--model-id h2oai/h2ogpt-oasst1-falcon-40b --num-shard=8", 7),
    ("h2oai/h2ogpt#295, the host's network",
     'CUDA_VISIBLE_DEVICES=0,1,2 docker run --net=host --gpus all --shm-size 2g -e TRANSFORMERS_CACHE="/.cache/" '
     "-p 6112:80 -v /home/me/.cache:/.cache/ -v /home/me/.cache/huggingface/hub/:/data "
     "ghcr.io/huggingface/text-generation-inference:0.8.2 --model-id m --num-shard=3",
     "ghcr.io/huggingface/text-generation-inference:0.8.2", "--model-id m --num-shard=3", 7),
    ("docker/cli#5321",
     "docker run --device-read-bps /dev/sda2:10M busybox sh -c 'dd if=/dev/zero of=/tmp.img bs=10M count=10'",
     "busybox", "sh -c 'dd if=/dev/zero of=/tmp.img bs=10M count=10'", 1),
    ("moby/moby#12180", "docker run -ti --cpu-period=50000 --cpu-quota=25000 ubuntu:14.04 /bin/bash",
     "ubuntu:14.04", "/bin/bash", 4),
    ("docker/docker-bench-security#89", "docker run -ti -m 100M --oom-kill-disable ubuntu:14.04 /bin/bash",
     "ubuntu:14.04", "/bin/bash", 4),
    ("moby/moby#11034", "docker run -ti -m 100M --oom-kill-disable=true ubuntu:14.04 /bin/bash",
     "ubuntu:14.04", "/bin/bash", 4),
    ("Brainicism/bgutil-ytdlp-pot-provider#110",
     "docker run --name bgutil-provider -d -p 4416:4416 --init brainicism/bgutil-ytdlp-pot-provider",
     "brainicism/bgutil-ytdlp-pot-provider", "", 4),
    ("imagegenius/docker-amp#9",
     "docker run -d --name=amp --mac-address=00:00:00:00:00:00 -e PUID=1000 -e PGID=1000 -e TZ=Etc/UTC "
     "-e USERNAME=admin -e PASSWORD=admin -p 8080:8080 -v path_to_appdata:/config --restart unless-stopped "
     "--stop-timeout=60 --stop-signal=SIGTERM ghcr.io/imagegenius/amp:latest",
     "ghcr.io/imagegenius/amp:latest", "", 13),
    ("JaeikBae/ollama-on-docker run.sh",
     "sudo docker run --rm -d -v /w/data/root:/root -v /w/data/db:/ws/open-webui/backend/data --name ollama_serve "
     "--gpus=all --network host ollama", "ollama", "", 7),
    ("930727fre/VQAweb backend/ollama/ollama-docker.sh",
     'docker run --gpus all --rm -d -v ollama:/root/.ollama -v "/w:/data" -p 11434:11434 --name ollama ollama/ollama',
     "ollama/ollama", "", 7),
    ("ollama/ollama run-ollama-docker.sh",
     "docker run -d -v ollama:/root/.ollama -p 11434:11434 --name ollama ollama/ollama", "ollama/ollama", "", 4),
    ("Cybsloth/llm_zoomcamp_2024 02-open-source/run_ollama.sh",
     "docker run -it --rm -v ./ollama_files:/root/.ollama -p 11434:11434 --name ollama ollama/ollama",
     "ollama/ollama", "", 6),
    ("StudentCode-in/Hacktoberfest2020 tensorflow-serve.sh",
     'docker run -t --rm -d -p 8501:8501 -v "./models/:/models/" tensorflow/serving '
     "--model_config_file=/models/models.conf",
     "tensorflow/serving", "--model_config_file=/models/models.conf", 5),
    ("binhetech/bert-application deploy/docker_run.sh",
     "docker run -t --rm -p 8501:8501 -v /home/me/saved_model:/models/garbledSents -e MODEL_NAME=garbledSents "
     "tensorflow/serving", "tensorflow/serving", "", 5),
    ("mseimys/peckis serving.sh",
     'docker run -it --rm -p 8501:8501 -v "/w/serving:/models" -e MODEL_NAME=number tensorflow/serving',
     "tensorflow/serving", "", 6),
    ("vasilkosturski/tf-serving-grpc-dotnet-5 src/deploy-model.bat",
     'docker run -t --rm --name=tf-serving-mnist -p 8500:8500 -v "/w/mnist-model:/models/model" tensorflow/serving '
     "--model_name=mnist-model", "tensorflow/serving", "--model_name=mnist-model", 5),
    ("ii6uu99/.dotfiles links/.bin/jupyter/run_chemo_jupyter.sh",
     "docker run -e GRANT_SUDO=yes -e NB_GID=8888 -e NB_UID=8888 -d -p 8888:8888 --rm -v /jupyter:/home/jovyan/work "
     "--user root --name chemometrics chemowakate/tutorial-7th start-notebook.sh --NotebookApp.port=1",
     "chemowakate/tutorial-7th", "start-notebook.sh --NotebookApp.port=1", 9),
    ("loki2302/learning-ml jupyter.sh",
     'docker run --rm -p 8888:8888 -e JUPYTER_ENABLE_LAB=yes -v "/w":/home/jovyan/work '
     "jupyter/scipy-notebook:7d427e7a4dde", "jupyter/scipy-notebook:7d427e7a4dde", "", 4),
    ("radicalsubject/PSMA-TRP-docking run_scipynotebook.sh",
     'docker run -p 40001:8888 -e NB_USER=asya -w /home/asya -e CHOWN_HOME=yes -v "/w":/home/asya/work '
     "-e GRANT_SUDO=yes --user root jupyter/scipy-notebook jupyter-notebook --allow-root",
     "jupyter/scipy-notebook", "jupyter-notebook --allow-root", 7),
    ("mamajjo/studies_DataAnalysis zad2/README.md",
     'docker run --rm -it --user root -e NB_GID=100 -e GRANT_SUDO=yes -p 8888:8888 '
     '-v "/w/jupyter:/home/jovyan/host-note" jupyter/scipy-notebook:latest',
     "jupyter/scipy-notebook:latest", "", 8),
    ("mamajjo/studies_DataAnalysis zad2/README.md, MacOS",
     "docker run --rm -it -e GRANT_SUDO=yes -p 8889:8888 -v /w/jupyter:/home/jovyan/host-note "
     "jupyter/scipy-notebook:latest start-notebook.sh --NotebookApp.token=''",
     "jupyter/scipy-notebook:latest", "start-notebook.sh --NotebookApp.token=", 6),
    ("datalab-to/marker#1085, docker",
     "docker run --rm -ti --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=all ubuntu nvidia-smi -L",
     "ubuntu", "nvidia-smi -L", 5),
)  # fmt: skip
PODMAN = (
    ("iapt-platform/mint docker/first.sh",
     "podman run --name mint -it --userns=keep-id --hostname=palm --user=1000:1000 --network host "
     "--events-backend=file -v /w/..:/workspace:z palm", "palm", "", 9),
    ("andrewcgaitskell/homeassistant_v0 containers/volume/clean+create.sh",
     "podman run --rm --name volume_container --userns=keep-id --volume /home/me/volume_test:/data volume_image",
     "volume_image", "", 4),
    ("brett060102/dev-container dev-env-wrapper.sh",
     'podman run  --security-opt label=disable -it -v /w:/work -v /home/me:/home/me --userns=keep-id --rm dev-env gcc',
     "dev-env", "gcc", 7),
    ("jwillikers/pre-commit-image test.sh",
     "podman run --rm --userns keep-id --device /dev/fuse --security-opt label=disable "
     "--volume pre-commit-image:/home/podman/.local/share/containers/storage --name test-container "
     'localhost/pre-commit podman run registry.fedoraproject.org/fedora-minimal:latest echo "Hello World!"',
     "localhost/pre-commit", "podman run registry.fedoraproject.org/fedora-minimal:latest echo 'Hello World!'", 6),
    ("datalab-to/marker#1085",
     "podman run --rm --device nvidia.com/gpu=all --security-opt=label=disable ubuntu nvidia-smi -L",
     "ubuntu", "nvidia-smi -L", 3),
    ("datalab-to/marker#1085, its runtime",
     "podman run --rm -ti --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=all ubuntu nvidia-smi -L",
     "ubuntu", "nvidia-smi -L", 5),
    ("predibase/lorax#266",
     "sudo podman run -it --rm --security-opt=label=disable --device nvidia.com/gpu=all --shm-size 1g -p 8080:80 "
     "-v /w/data:/data:Z ghcr.io/predibase/lorax:latest --model-id m",
     "ghcr.io/predibase/lorax:latest", "--model-id m", 8),
    ("predibase/lorax#266, rootless",
     "podman run -it --rm --security-opt=label=disable --device nvidia.com/gpu=all --shm-size 1g -p 8080:80 "
     "-v /opt/lorax/data:/data:Z ghcr.io/predibase/lorax:latest --model-id mistralai/Mistral-7B-Instruct-v0.1",
     "ghcr.io/predibase/lorax:latest", "--model-id mistralai/Mistral-7B-Instruct-v0.1", 8),
    ("LukeShortCloud/rootpages#1047",
     "podman run --user 1000:1000 --security-opt=no-new-privileges --cap-drop=ALL "
     "--security-opt label=type:nvidia_container_t docker.io/nvidia/samples:vectoradd-cuda11.2.1",
     "docker.io/nvidia/samples:vectoradd-cuda11.2.1", "", 4),
)  # fmt: skip
LINES = [
    pytest.param(*each, id=each[0].replace(" ", "_"), marks=pytest.mark.machine(f"{engine} command"))
    for engine, lines in (("docker", DOCKER), ("podman", PODMAN))
    for each in lines
]


def line(text: str) -> Line:
    return parsed(shlex.split(text), LocalHost())


@pytest.mark.parametrize(("source", "text", "image", "command", "count"), LINES)
def test_a_line_is_read_as_its_own_command_reads_it(
    source: str, text: str, image: str, command: str, count: int
) -> None:
    assert is_line(shlex.split(text))
    found = line(text)
    assert (found.image, shlex.join(found.command), len(found.flags)) == (image, command, count)


def test_there_are_sixty_lines_of_other_people() -> None:
    assert len(LINES) >= 60


@pytest.mark.machine("docker command")
def test_options_have_their_long_names_and_stand_as_they_were_written() -> None:
    found = line("docker -c default run -itv /a:/b -p80:80 -e=A=1 -m 1g --rm=false --cpus 2 app:1 run --cpus 3")

    assert [(flag.name, flag.value) for flag in found.flags] == [
        ("--interactive", "true"), ("--tty", "true"), ("--volume", "/a:/b"), ("--publish", "80:80"), ("--env", "A=1"),
        ("--memory", "1g"), ("--rm", "false"), ("--cpus", "2"),
    ]  # fmt: skip
    assert not found.has("--rm") and found.has("--tty")
    assert shlex.join(found.words()) == (
        "docker -c default run -i -t -v /a:/b -p80:80 -e=A=1 -m 1g --rm=false --cpus 2 app:1 run --cpus 3"
    )


@pytest.mark.machine("docker command")
def test_an_option_is_taken_out_by_a_name_that_tells_no_value() -> None:
    found = line("docker run -e A=1 -e B=2 -v /a:/a -v /b:/b --ulimit nofile=9 --cpus 1 app")

    assert [*found.named] == ["--env=A", "--env=B", "--volume#1", "--volume#2", "--ulimit=nofile", "--cpus"]
    changed = found.changed({"B": None, "C": None}, {"--volume#1": None, "--cpus": "2", "--ulimit=nofile": "8"})
    assert shlex.join(changed.words()) == ("docker run -e A=1 -v /b:/b --env=C --cpus=2 --ulimit=nofile=8 app")


@pytest.mark.machine("docker command")
def test_what_is_shown_of_a_line_has_no_values_that_tell_anything() -> None:
    shown = line(
        "docker run -e DATABASE_URL=postgres://canary1@db/x -eNAME=canary2 --env=OMP_NUM_THREADS=1 "
        "--health-cmd 'curl -H \"Authorization: Bearer canary3\"' app --token canary4"
    ).shown()

    assert "canary" not in shown
    assert "OMP_NUM_THREADS=1" in shown and "DATABASE_URL=hmac:" in shown


def test_the_script_of_a_health_check_is_shown_as_a_digest_alone() -> None:
    for words in (("--health-cmd", "log in canary"), ("--health-cmd=log in canary",)):
        shown = " ".join(Flag("--health-cmd", "log in canary", words).shown())
        assert shown.startswith("--health-cmd") and "hmac:" in shown and "log in" not in shown


@pytest.mark.machine("docker command")
@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("docker run --no-such-option app", "has no option --no-such-option"),
        ("docker run --rm", "names no image"),
        ("docker run --rm --name", "--name of this `docker run` line has no value"),
        ("docker exec box run", "`docker exec` is not `docker run`"),
        ("/no/such/docker run app", "no program '/no/such/docker'"),
    ],
)
def test_a_line_that_its_command_would_refuse_is_refused_in_a_sentence(text: str, wrong: str) -> None:
    with pytest.raises(StudyError, match=wrong):
        line(text)


@pytest.mark.parametrize("text", ["python train.py", "docker build .", "env docker run app", "podmanx run a", ""])
def test_other_commands_are_no_lines(text: str) -> None:
    assert not is_line(shlex.split(text))


def test_a_help_text_that_is_broken_over_lines_is_read() -> None:
    found = options(
        "  -c, --cpu-shares int                   CPU shares (relative weight)\n      --cpus decimal\n"
        "                                         '--init': no option\n      --help                 \n"
    )

    assert found["-c"] == found["--cpu-shares"] == ("--cpu-shares", True)
    assert (found["--cpus"].takes_value, found["--help"].takes_value, "--init" in found) == (True, False, False)
