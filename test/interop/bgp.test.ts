// Tests sessions between calico-ts nodes and other routers: BIRD, FRR and GoBGP as top-of-rack switches in another AS.
import { expect, test } from "bun:test";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { execFileSync } from "node:child_process";
import { pollUntil } from "../../src/lib/testing/eventually.ts";
import { RouterNetwork } from "../functional/bgp/routers.ts";

if (process.getuid?.() !== 0) throw new Error("run as root: this builds network namespaces");
const TOR = 254;
const OURS = "192.168.1.0/26";
/** The prefix that the router announces. */
const THEIRS = "172.30.0.0/16";

const isConnected = (seen: readonly string[]) => seen.includes(`10.77.0.${TOR}`);

interface Tor {
  readonly name: string;
  /** Starts the router in the namespace `tor`. Returns a function that prints the learned routes. */
  start(net: RouterNetwork, password: string | undefined): () => string;
}

const inside = (net: RouterNetwork, ...command: readonly string[]): string =>
  execFileSync("ip", ["netns", "exec", net.nameOf("tor"), ...command], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
const orEmpty = (look: () => string) => () => {
  try {
    return look();
  } catch {
    return ""; // not ready yet
  }
};

/** Starts FRR in the namespace `tor`. Returns a function that prints the learned routes. */
function startFrr(net: RouterNetwork, family: "ipv4" | "ipv6", configuration: string): () => string {
  const folder = join(net.folder, `frr-${family}`);
  mkdirSync(folder);
  const file = join(folder, "bgpd.conf");
  writeFileSync(file, configuration);
  chmodSync(net.folder, 0o755);
  const files = ["-f", file, "-i", join(folder, "pid"), "--vty_socket", folder];
  const ports = ["-p", "179", "-A", "127.0.0.1", "-P", "0"];
  net.start("tor", ["/usr/lib/frr/bgpd", "-Z", "-n", "-S", "-u", "root", "-g", "root", ...files, ...ports]);
  const look = ["--vty_socket", folder, "-d", "bgpd", "-c", `show bgp ${family} unicast`];
  return orEmpty(() => execFileSync("vtysh", look, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }));
}

const tors: readonly Tor[] = [
  {
    name: "stock BIRD",
    start: (net, password) => {
      const file = join(net.folder, "tor.conf");
      writeFileSync(
        file,
        `router id 10.77.0.${TOR};
protocol device {}
protocol static { ipv4; route ${THEIRS} blackhole; }
protocol bgp node { local as 65100; neighbor 10.77.0.1 as 64512; ${password === undefined ? "" : `password "${password}";`} ipv4 { import all; export where source = RTS_STATIC; }; }
`,
      );
      const socket = join(net.folder, "tor.ctl");
      net.start("tor", ["bird", "-f", "-c", file, "-s", socket]);
      return orEmpty(() => execFileSync("birdc", ["-s", socket, "show", "route"], { encoding: "utf8" }));
    },
  },
  {
    name: "FRR",
    start: (net, password) => {
      return startFrr(
        net,
        "ipv4",
        `hostname tor
router bgp 65100
 bgp router-id 10.77.0.${TOR}
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 10.77.0.1 remote-as 64512
${password === undefined ? "" : ` neighbor 10.77.0.1 password ${password}\n`} address-family ipv4 unicast
  network ${THEIRS}
`,
      );
    },
  },
  {
    name: "GoBGP",
    start: (net, password) => {
      const file = join(net.folder, "gobgp.toml");
      writeFileSync(
        file,
        `[global.config]
as = 65100
router-id = "10.77.0.${TOR}"
[[neighbors]]
[neighbors.config]
neighbor-address = "10.77.0.1"
peer-as = 64512
${password === undefined ? "" : `auth-password = "${password}"\n`}`,
      );
      net.start("tor", ["gobgpd", "-f", file, "--api-hosts", "127.0.0.1:50051", "--pprof-disable"]);
      let isAnnounced = false;
      return orEmpty(() => {
        if (!isAnnounced) {
          inside(net, "gobgp", "global", "rib", "add", THEIRS);
          isAnnounced = true;
        }
        return inside(net, "gobgp", "global", "rib");
      });
    },
  },
];

for (const tor of tors) {
  test.concurrent(`NB-083 eBGP with ${tor.name}: both sides learn routes, and the pod network is announced as a block`, async () => {
    await using net = await RouterNetwork.create();
    await net.put("IPPool", "p4", { cidr: "192.168.0.0/16" });
    net.addHost("tor", TOR);
    const learnt = tor.start(net, undefined);
    await net.put("BGPPeer", "tor", { node: "n1", peerIP: `10.77.0.${TOR}`, asNumber: 65100 });
    await net.addNode("n1", 1);
    await pollUntil(() => net.established("n1", 4), isConnected, 40_000);
    await pollUntil(learnt, (text) => text.includes(OURS));
    const routes = await pollUntil(
      () => net.routes("n1", 4),
      (text) => text.includes(THEIRS),
    );
    expect(routes).toContain(`${THEIRS} via 10.77.0.${TOR} dev eth0`);
  }, 90_000);

  test.concurrent(`NB-090 with ${tor.name}, a session with the right password is established, with another one it is not`, async () => {
    await using net = await RouterNetwork.create();
    await net.put("IPPool", "p4", { cidr: "192.168.0.0/16" });
    net.addHost("tor", TOR);
    tor.start(net, "s3cret");
    const put = (key: string) =>
      net.put("BGPPeer", "tor", {
        node: "n1",
        peerIP: `10.77.0.${TOR}`,
        asNumber: 65100,
        password: { secretKeyRef: { name: "bgp", key } },
      });
    await put("right");
    const passwords = {
      get: ({ key }: { readonly key: string }) => (key === "right" ? "s3cret" : "other"),
      watch: async () => {},
    };
    await net.addNode("n1", 1, { passwords });
    await pollUntil(() => net.established("n1", 4), isConnected, 60_000);
    await put("wrong");
    await pollUntil(
      () => net.established("n1", 4),
      (seen) => !isConnected(seen),
    );
    await put("right");
    await pollUntil(() => net.established("n1", 4), isConnected, 60_000);
  }, 90_000);
}

const OURS_6 = "fd80:1::/122";
const THEIRS_6 = "2001:db8:30::/48";

/** The same routers over IPv6. */
const over6: readonly { readonly name: string; start(net: RouterNetwork): () => string }[] = [
  {
    name: "stock BIRD",
    start: (net) => {
      const file = join(net.folder, "tor6.conf");
      writeFileSync(
        file,
        `router id 10.77.0.${TOR};
protocol device {}
protocol static { ipv6; route ${THEIRS_6} blackhole; }
protocol bgp node { local as 65100; neighbor fd77::1 as 64512; ipv6 { import all; export where source = RTS_STATIC; }; }
`,
      );
      const socket = join(net.folder, "tor6.ctl");
      net.start("tor", ["bird", "-f", "-c", file, "-s", socket]);
      return orEmpty(() => execFileSync("birdc", ["-s", socket, "show", "route"], { encoding: "utf8" }));
    },
  },
  {
    name: "FRR",
    start: (net) => {
      return startFrr(
        net,
        "ipv6",
        `hostname tor
router bgp 65100
 bgp router-id 10.77.0.${TOR}
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor fd77::1 remote-as 64512
 address-family ipv6 unicast
  neighbor fd77::1 activate
  network ${THEIRS_6}
`,
      );
    },
  },
];

for (const tor of over6)
  test.concurrent(`NB-083 eBGP over IPv6 with ${tor.name}: both sides learn routes`, async () => {
    await using net = await RouterNetwork.create();
    await net.put("IPPool", "p6", { cidr: "fd80::/16" });
    net.addHost("tor", TOR);
    const learnt = tor.start(net);
    await net.put("BGPPeer", "tor", { node: "n1", peerIP: `fd77::${TOR}`, asNumber: 65100 });
    await net.addNode("n1", 1, { families: [6] });
    await pollUntil(
      () => net.established("n1", 6),
      (seen) => seen.includes(`fd77::${TOR}`),
      40_000,
    );
    await pollUntil(learnt, (text) => text.includes(OURS_6));
    const routes = await pollUntil(
      () => net.routes("n1", 6),
      (text) => text.includes(THEIRS_6),
    );
    expect(routes).toMatch(new RegExp(`${THEIRS_6} via (fd77::${TOR}|fe80::\\S+) dev eth0`)); // BIRD uses either next hop
  }, 90_000);
