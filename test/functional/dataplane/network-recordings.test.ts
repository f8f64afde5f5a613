// Sends recorded messages to the dataplane and compares routes, neighbours, forwarding entries and sysctls with the recordings.
import { expect, test } from "bun:test";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { load } from "js-yaml";
import { LinuxDataplane } from "../../../src/dataplane/index.ts";
import {
  NetworkNamespace,
  Nft,
  openConntrack,
  openRtnetlink,
  procSysctls,
  withNamespace,
} from "../../../src/kernel/index.ts";
import { silentLogger } from "../../../src/lib/log/log.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { TestNamespace } from "../kernel/test-namespace.ts";
import { parametersOf, PLAIN_FACTS } from "./host.ts";
import { recordedMessages, recordedStates, stateFile } from "./recordings.ts";

/** States in which calico-ts differs intentionally. */
const DIFFERENT: Readonly<Record<string, readonly string[]>> = {
  "floating-ip": ["ip-route"], // a floating address of two workloads is routed to the workload to which it is translated
};
const PROVES: Readonly<Record<string, string>> = {
  "wl-profile-allow": "FD-120 FD-121 FD-122",
  "vxlan-always": "FD-142 FD-146",
  "vxlan-cross-subnet": "FD-143",
  "vxlan-dual-stack": "FD-144",
  "vxlan-borrowed-tunnel": "FD-142",
  "no-encap-felix-routes": "FD-145",
  "no-encap-default": "FD-145",
  "source-spoofing": "FD-042",
  "empty-node": "FD-013",
};

interface HostFile {
  readonly links: readonly {
    readonly name: string;
    readonly mac: string;
    readonly state: string;
    readonly addresses?: string[];
  }[];
  readonly commandsBeforeStart?: readonly string[];
}
const words = (text: string) =>
  text
    .split("\n")
    .map((line) => line.replace(/\s+/g, " ").trim())
    .filter((line) => line !== "");

for (const state of recordedStates())
  test(`${PROVES[state] ?? "recorded state"} ${state}: routes, neighbours and settings are as recorded`, async () => {
    const folder = mkdtempSync(join(tmpdir(), "calico-dp-"));
    using host = new TestNamespace("dpst");
    using peer = new TestNamespace("dpsp");
    const handle = NetworkNamespace.named(host.name);
    const ip = (...args: string[]) => execFileSync("ip", ["-n", host.name, ...args]);
    host.enter(() => {
      procSysctls.write(["net", "ipv4", "conf", "default", "rp_filter"], 1);
      procSysctls.write(["net", "ipv4", "conf", "all", "rp_filter"], 1);
    });
    const description = load(stateFile(state, "host.yaml") ?? "links: []") as HostFile;
    for (const [i, link] of description.links.entries()) {
      ip("link", "add", link.name, "address", link.mac, "type", "veth", "peer", "name", `pe${i}`, "netns", peer.name);
      for (const address of link.addresses ?? [])
        ip("addr", "add", address, "dev", link.name, ...(address.includes(":") ? ["nodad"] : []));
      if (link.state !== "admin down") ip("link", "set", link.name, "up");
      if (!link.state.includes("no carrier")) execFileSync("ip", ["-n", peer.name, "link", "set", `pe${i}`, "up"]);
    }
    for (const command of description.commandsBeforeStart ?? []) host.run("sh", ["-c", command]);

    const messages = recordedMessages(state);
    const settings: Record<string, string> = {};
    const facts = { ...PLAIN_FACTS };
    for (const message of messages) {
      if (message.type === "configUpdate") Object.assign(settings, message.config);
      if (message.type === "encapsulation") Object.assign(facts, message, { type: undefined });
    }
    delete settings["DataplaneDriver"];
    using ruleset = withNamespace(handle, () => new Nft());
    using routes = openRtnetlink(handle);
    using conntrack = openConntrack(handle);
    let applied = 0;
    const stop = new AbortController();
    const dataplane = new LinuxDataplane({
      parameters: parametersOf(settings),
      facts,
      kernel: {
        rules: { backend: "nftables", ruleset },
        routes,
        conntrack,
        sysctls: {
          read: (path) => host.enter(() => procSysctls.read(path)),
          write: (path, value) => host.enter(() => procSysctls.write(path, value)),
        },
        namespace: handle,
      },
      logger: silentLogger,
      mtuFile: join(folder, "mtu"),
      report: () => {},
      onApplied: () => applied++,
    });
    const running = dataplane.run(stop.signal);
    try {
      for (const message of messages) dataplane.send(message);
      await eventually(() => applied > 0);
      const readers: Readonly<Record<string, () => string[]>> = {
        "ip-route": () =>
          words(host.run("sh", ["-c", "ip -d -4 route show table all; ip -d -6 route show table all"]))
            .filter((line) => !line.includes("proto kernel") && !line.includes("table local"))
            .sort(),
        "ip-neigh": () => words(host.run("sh", ["-c", "ip neigh show nud permanent; ip neigh show proxy"])).sort(),
        fdb: () =>
          words(host.run("bridge", ["fdb", "show"]))
            .filter((line) => line.includes("vxlan"))
            .sort(),
        sysctl: () =>
          words(
            host.run(
              "sysctl",
              words(stateFile(state, "sysctl") ?? "").map((line) => line.split(" = ")[0] ?? ""),
            ),
          ),
      };
      for (const [file, read] of Object.entries(readers)) {
        const recorded = stateFile(state, file);
        if (recorded === undefined || DIFFERENT[state]?.includes(file) === true) continue;
        const desired = words(recorded);
        // Devices are up only some time after their creation.
        await eventually(() => Bun.deepEquals(read(), desired), 3000).catch(() => {});
        expect(read()).toEqual(desired);
      }
      const status = JSON.parse(stateFile(state, "status.json") ?? "{}") as { mtuFile?: string };
      if (status.mtuFile !== undefined) expect(readFileSync(join(folder, "mtu"), "utf8")).toBe(status.mtuFile);
    } finally {
      stop.abort();
      await running;
      handle[Symbol.dispose]();
      rmSync(folder, { recursive: true });
    }
  });
