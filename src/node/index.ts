// `calico-node -ROLE`: the parts of a node, each by its flag.

type Program = (argv: readonly string[]) => Promise<number> | number;

const roles: Readonly<Record<string, () => Promise<{ main: Program }>>> = {
  "-confd": () => import("../bgp/index.ts"),
  "-felix": () => import("../felix/index.ts"),
  "-startup": () => import("./startup-command.ts"),
  "-allocate-tunnel-addrs": () => import("./tunnel-command.ts"),
};

export async function main(argv: readonly string[]): Promise<number> {
  const [flag, ...rest] = argv;
  const load = flag === undefined ? undefined : roles[flag.replace(/^--/, "-")];
  if (load !== undefined) return (await load()).main(rest);
  console.error(`calico-node: say which part to run: ${Object.keys(roles).join(", ")}`);
  return 2;
}
