# SPDX-License-Identifier: Apache-2.0
"""A cluster on one machine: one network and UTS namespace per host, a bridge in a namespace of its
own (no packet leaves the machine), /dev/shm and TMPDIR per host, optionally real Slurm daemons.

    with VirtualCluster(hosts=2, slurm=True) as cluster:
        cluster.run(cluster.hosts[0], ["srun", "--mpi=pmix", "-N2", "hostname"])

Needs root, iproute2 and, for Slurm, slurm-wlm and munge. Clusters of different processes do not see
each other, so tests may run side by side. `python3 virtual_cluster.py HOSTS [CMD...]` starts one by
hand and runs CMD (a shell when there is none) on its first host.
"""
import contextlib
import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


_numbers = itertools.count()


def why_not(slurm=False):
    """The reason why this machine cannot hold a virtual cluster, or None."""
    if os.geteuid() != 0:
        return "virtual hosts need root"
    if shutil.which("ip") is None:
        return "virtual hosts need the package iproute2"
    if slurm and not all(map(shutil.which, ("slurmctld", "slurmd", "munged", "srun"))):
        return "needs the packages slurm-wlm and munge"
    name = f"vcprobe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode != 0:
        return "this machine cannot make network namespaces: " + made.stderr.strip()
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} within {seconds} s")
        time.sleep(0.05)


class VirtualCluster:
    def __init__(self, hosts=2, slurm=False, gpus=0, cores=4):
        self.name = f"vc{os.getpid()}{'abcdefghijklmnop'[next(_numbers)]}"
        self.hosts = [f"{self.name}n{i}" for i in range(hosts)]
        self.slurm, self.gpus, self.cores = slurm, gpus, cores
        self.switch = self.name + "sw"
        self.root = pathlib.Path("/run") / self.name
        self.daemons = []
        self.env = dict(os.environ, VC_ROOT=str(self.root),
                        SLURM_CONF=str(self.root / "slurm.conf"), OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                        OMPI_MCA_plm_rsh_agent=str(HERE / "ns-rsh"),
                        OMPI_MCA_mpi_yield_when_idle="1", OMP_NUM_THREADS="1")
        if not slurm:
            self.env["OMPI_MCA_plm"] = "rsh"

    def __enter__(self):
        try:
            self._make_network()
            if self.slurm:
                self._start_slurm()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(5)
        for host in self.hosts:
            self._kill_all(host)
            subprocess.run(["ip", "netns", "del", host], capture_output=True)
            shutil.rmtree(f"/etc/netns/{host}", ignore_errors=True)
        subprocess.run(["ip", "netns", "del", self.switch], capture_output=True)
        subprocess.run(["umount", self.root / "shm"], capture_output=True)
        shutil.rmtree(self.root, ignore_errors=True)

    # -- commands --------------------------------------------------------------------------------

    def on(self, host, argv):
        return [str(HERE / "ns-exec"), host, *map(str, argv)]

    def popen(self, host, argv, env=None, **options):
        return subprocess.Popen(self.on(host, argv), env={**self.env, **(env or {})},
                                stdin=subprocess.DEVNULL, **options)

    def run(self, host, argv, env=None, timeout=120):
        """stdout and stderr as text; raises when the command takes longer than `timeout`."""
        return subprocess.run(self.on(host, argv), env={**self.env, **(env or {})}, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout)

    def hostfile(self, slots):
        path = self.root / "hosts"
        path.write_text("".join(f"{host} slots={slots}\n" for host in self.hosts))
        return str(path)

    # -- faults and what is left -----------------------------------------------------------------

    def pids(self, host):
        """Processes on the host, those of Slurm itself excepted."""
        listed = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True)
        found = []
        for pid in map(int, listed.stdout.split()):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if not pathlib.Path(f"/proc/{pid}/comm").read_text().startswith("slurm"):
                    found.append(pid)
        return found

    def cut_link(self, host):
        self._ip("-n", self.switch, "link", "set", self._port(host), "down")

    def mend_link(self, host):
        self._ip("-n", self.switch, "link", "set", self._port(host), "up")

    def lose_host(self, host):
        """The machine is gone: first its network, then everything on it, Slurm's daemon too."""
        self.cut_link(host)
        self._kill_all(host)

    def _kill_all(self, host):
        listed = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True)
        for pid in listed.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def shared_memory_left(self):
        return [str(path) for host in self.hosts for path in (self.root / "shm" / host).iterdir()]

    # -- parts -----------------------------------------------------------------------------------

    @staticmethod
    def _ip(*words):
        subprocess.run(["ip", *words], check=True)

    def _port(self, host):
        return f"v{self.hosts.index(host)}"

    def _make_network(self):
        (self.root / "shm").mkdir(mode=0o755, parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.root / "shm"], check=True)
        self._ip("netns", "add", self.switch)
        self._ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        self._ip("-n", self.switch, "link", "set", "br0", "up")
        table = "127.0.0.1 localhost\n" + "".join(
            f"10.77.0.{10 + i} {host}\n" for i, host in enumerate(self.hosts))
        for i, host in enumerate(self.hosts):
            self._ip("netns", "add", host)
            self._ip("link", "add", self._port(host), "netns", self.switch, "type", "veth", "peer",
                     "name", "eth0", "netns", host)
            self._ip("-n", self.switch, "link", "set", self._port(host), "master", "br0", "up")
            self._ip("-n", host, "link", "set", "lo", "up")
            self._ip("-n", host, "addr", "add", f"10.77.0.{10 + i}/24", "dev", "eth0")
            self._ip("-n", host, "link", "set", "eth0", "up")
            for folder in (f"/etc/netns/{host}", self.root / "shm" / host,
                           self.root / f"tmp-{host}", self.root / f"spool-{host}"):
                pathlib.Path(folder).mkdir(parents=True)
            pathlib.Path("/etc/netns", host, "hosts").write_text(table)

    def _daemon(self, name, argv, host=None):
        command = self.on(host, argv) if host else list(argv)
        with open(self.root / f"{name}.log", "w") as log:
            self.daemons.append(subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL,
                                                 stdout=log, stderr=log))

    def _start_slurm(self):
        root = self.root
        (root / "state").mkdir()
        (root / "munge.key").write_bytes(os.urandom(1024))
        (root / "munge.key").chmod(0o600)
        self._daemon("munged", [
            "munged", "--foreground", f"--key-file={root}/munge.key", f"--socket={root}/munge.sock",
            f"--pid-file={root}/munged.pid", f"--log-file={root}/munged.out",
            f"--seed-file={root}/munge.seed"])
        for gpu in range(self.gpus):  # any character device will do
            os.mknod(root / f"gpu{gpu}", 0o20666, os.makedev(1, 3))
        # ip netns exec hides /sys/fs/cgroup, and slurmd stops when it looks for version 2 there.
        (root / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (root / "gres.conf").write_text(
            f"Name=gpu File={root}/gpu[0-{self.gpus - 1}]\n" if self.gpus else "")
        (root / "slurm.conf").write_text(self._slurm_conf())
        wait_until((root / "munge.sock").exists, 60, "munged did not start")
        self._daemon("slurmctld", ["slurmctld", "-D", "-c"], self.hosts[0])
        for host in self.hosts:
            self._daemon(f"slurmd-{host}", ["slurmd", "-D", "-N", host], host)
        wait_until(lambda: len(self.run(self.hosts[0], [
            "sinfo", "-h", "-N", "-t", "idle", "-o", "%N"]).stdout.split()) == len(self.hosts), 60,
            "Slurm's nodes did not come up")

    def _slurm_conf(self):
        root, gres = self.root, f" Gres=gpu:{self.gpus}" if self.gpus else ""
        lines = ["ClusterName=virtual", f"SlurmctldHost={self.hosts[0]}(10.77.0.10)",
                 "SlurmUser=root", "AuthType=auth/munge", f"AuthInfo=socket={root}/munge.sock",
                 "MpiDefault=none", "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none",
                 "JobAcctGatherType=jobacct_gather/none",
                 "AccountingStorageType=accounting_storage/none", "SelectType=select/cons_tres",
                 "SelectTypeParameters=CR_Core", "SlurmdParameters=config_overrides",
                 "ReturnToService=2", f"StateSaveLocation={root}/state",
                 f"SlurmdSpoolDir={root}/spool-%n", f"TmpFS={root}/tmp-%n",
                 f"SlurmctldPidFile={root}/slurmctld.pid", f"SlurmdPidFile={root}/slurmd-%n.pid",
                 f"SlurmctldLogFile={root}/slurmctld.out", f"SlurmdLogFile={root}/slurmd-%n.out",
                 "SlurmdTimeout=15", "KillWait=1",
                 "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"]
        if self.gpus:
            lines.append("GresTypes=gpu")
        for i, host in enumerate(self.hosts):
            lines.append(f"NodeName={host} NodeAddr=10.77.0.{10 + i} CPUs={self.cores} Boards=1 "
                         f"SocketsPerBoard=1 CoresPerSocket={self.cores} ThreadsPerCore=1 "
                         f"RealMemory=2000{gres}")
        return "\n".join(lines) + "\n"


def main():
    words = sys.argv[2:] or ["bash"]
    with VirtualCluster(hosts=int(sys.argv[1]), slurm=why_not(slurm=True) is None) as cluster:
        return subprocess.call(cluster.on(cluster.hosts[0], words), env=cluster.env)


if __name__ == "__main__":
    sys.exit(main())
