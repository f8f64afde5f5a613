// `calico component …`: the parts by the names newer deployments call them, each the same as by its own flag or file name.

type Program = (argv: readonly string[]) => Promise<number> | number;

/** What follows `component`; the words behind are the part's own. */
const components: Readonly<Record<string, () => Promise<Program>>> = {
  felix: async () => (await import("../felix/index.ts")).main,
  confd: async () => confd,
  node: async () => node,
};

/** `calico component node WORD` is `calico-node -WORD`. */
const NODE_WORDS = [
  "startup",
  "complete-startup",
  "allocate-tunnel-addrs",
  "monitor-addresses",
  "monitor-token",
  "shutdown",
  "hostpath-init",
  "init",
  "status-reporter",
  "show-status",
  "uninstall",
];

export async function main(argv: readonly string[]): Promise<number> {
  const [name = "", ...rest] = argv;
  const load = Object.hasOwn(components, name) ? components[name] : undefined;
  if (load === undefined) {
    console.error(`calico component: no part ${JSON.stringify(name)}; there are ${Object.keys(components).join(", ")}`);
    return 1;
  }
  return (await load())(rest);
}

async function confd(argv: readonly string[]): Promise<number> {
  const { main: run } = await import("./confd-command.ts");
  return run(argv.map((word) => word.replace(/^--(run-once|keep-stage-file|confdir)/, "-confd-$1")));
}

async function node(argv: readonly string[]): Promise<number> {
  const [word = "", ...rest] = argv;
  const { main: run } = await import("./index.ts");
  if (word === "status") return run([rest[0] === "show" ? "-show-status" : "-status-reporter"]);
  if (word === "health") return run(rest);
  if (word === "version") return run(["-v"]);
  if (word === "node-services") return (await import("./run-node.ts")).servicesMain();
  if (!NODE_WORDS.includes(word)) {
    console.error(`calico component node: no mode ${JSON.stringify(word)}; there are ${NODE_WORDS.join(", ")}`);
    return 1;
  }
  return run([`-${word}`, ...rest]);
}
