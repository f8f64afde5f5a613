// Wraps the kernel of a dataplane to observe every write before it is made.

const READS = new Set([
  ...["list", "get", "names", "tables", "chains", "rules", "sets", "elements", "generation", "save", "read", "lookup"],
  ...[
    "listProxies",
    "listFdb",
    "dryRun",
    "limitedLinks",
    "flowtables",
    "qdiscs",
    "root",
    "ingress",
    "objects",
    "counters",
    "fingerprint",
  ],
]);

/** Calls `before` with the name of every write. Reads are not reported. */
export function watchWrites<T extends object>(target: T, before: (what: string) => void, path = ""): T {
  return new Proxy(target, {
    get(of, name) {
      const value: unknown = Reflect.get(of, name);
      if (typeof name !== "string") return typeof value === "function" ? value.bind(of) : value;
      if (typeof value === "function")
        return (...args: unknown[]) => {
          const isFactory = name === "iptables";
          if (!READS.has(name) && !isFactory) before(`${path}${name}`);
          const result: unknown = value.apply(of, args);
          return isFactory ? watchWrites(result as object, before, "iptables.") : result;
        };
      return typeof value === "object" && value !== null ? watchWrites(value, before, `${path}${name}.`) : value;
    },
  });
}
