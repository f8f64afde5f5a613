// Which program was asked for. Every role is imported only when it is the one: eager imports cost
// more start-up time than everything else together. All but one: the CNI plugin is started for every
// pod, is small, and would wait for its own import.
import { main as calicoPlugin } from "./cni/calico.ts";
import { BUILD } from "./lib/build.ts";

type Program = (argv: readonly string[]) => Promise<number> | number;

type Load = () => Promise<{ main: Program }>;

/** By the name the executable was called with. */
const programs: Readonly<Record<string, Load>> = {
  calicoctl: () => import("./calicoctl/index.ts"),
  "kubectl-calico": () => import("./calicoctl/index.ts"),
  "calico-typha": () => import("./typha/program.ts"),
  "calico-kube-controllers": () => import("./controllers/program.ts"),
  "check-status": () => import("./controllers/check-status.ts"),
  "calico-ipam": () => import("./cni/calico-ipam.ts"),
  "calico-install": () => import("./cni/install.ts"),
  install: () => import("./cni/install.ts"), // manifests call /opt/cni/bin/install in the image
  "calico-felix": () => import("./felix/index.ts"),
  "calico-node": () => import("./node/index.ts"),
};

/** By the first word after `calico`. */
const commands: Readonly<Record<string, Load>> = {
  "cni-service": () => import("./cni/serve.ts"),
  component: () => import("./node/component.ts"),
  ctl: () => import("./calicoctl/index.ts"),
  health: () => import("./node/health-command.ts"),
  lab: () => import("./lab/index.ts"),
};

async function run(): Promise<number> {
  // Whoever starts us may have none, as some container runtimes: no file or folder of ours is for all to write.
  process.umask(process.umask() | 0o022);
  const argv = process.argv.slice(2);
  const name = process.argv0.slice(process.argv0.lastIndexOf("/") + 1); // node:path takes half a millisecond to load
  // kubectl finds a plugin by its file's name, which its user chooses.
  const program = programs[name.startsWith("kubectl-") ? "kubectl-calico" : name];
  if (program !== undefined) return (await program()).main(argv);
  // A container runtime calls the same file as its CNI plugin.
  const isFront = ["version", "help", ...Object.keys(commands)].includes(argv[0] ?? "");
  if (((process.env["CNI_COMMAND"] ?? "") !== "" && !isFront) || argv[0] === "-t") return calicoPlugin(argv);
  const [word, ...rest] = argv;
  if (word === undefined || ["help", "-h", "--help"].includes(word)) {
    // A runtime that forgot its command reads standard output: what nobody asked for does not go there.
    (word === undefined ? console.error : console.log)(help());
    return 0;
  }
  const command = commands[word];
  if (command !== undefined) return (await command()).main(rest);
  if (word === "version" || word === "-v" || word === "--version") {
    console.log(`calico ${BUILD.version} (${BUILD.commit})`);
    return 0;
  }
  console.error(`calico: no command ${word}; there are ${words()}`);
  return 2;
}

function help(): string {
  return `calico ${BUILD.version}: the CNI plugin, and a front to the other programs

  calico lab …            a cluster in network namespaces on this machine; calico lab help
  calico ctl …            the same as calicoctl
  calico component …      one part of calico-node; calico-node --help lists them
  calico health …         probes
  calico cni-service      the CNI plugin's service alone
  calico version          this program's version

A container runtime calls it as CNI plugin, with CNI_COMMAND in the environment.`;
}

function words(): string {
  return ["version", ...Object.keys(commands)].join(", ");
}

process.exitCode = await run();
