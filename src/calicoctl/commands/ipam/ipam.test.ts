// Tests the commands of `calicoctl ipam` on a SQLite datastore: output, stored data and exit codes.
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Datastore, openDatastore } from "../../../datastore/index.ts";
import { goTimestamp, Ipam } from "../../../ipam/index.ts";
import { type Cidr, parseAddress } from "../../../lib/ip/ip.ts";
import { ignoreUnreadable, readPool } from "../../../model/index.ts";
import { CommandLine, pool } from "../../testing/command-line.ts";

const node = (name: string, more = "") =>
  `apiVersion: projectcalico.org/v3\nkind: Node\nmetadata:\n  name: ${name}\nspec:\n  ${more || "{}"}\n`;
const endpoint = (name: string, address: string) =>
  `apiVersion: projectcalico.org/v3\nkind: WorkloadEndpoint\nmetadata:\n  name: n1-cni-${name}-eth0\n  namespace: default\nspec:\n  node: n1\n  orchestrator: cni\n  containerID: ${name}\n  endpoint: eth0\n  interfaceName: cali${name}\n  ipNetworks: [${address}/32]\n`;

async function withStore<T>(line: CommandLine, work: (store: Datastore, ipam: Ipam) => Promise<T>): Promise<T> {
  const path = line.env["CALICO_SQLITE_PATH"] ?? "";
  const store = await openDatastore({ type: "sqlite", path, isFallback: false });
  try {
    return await work(store, new Ipam({ datastore: store }));
  } finally {
    await store.close();
  }
}
test("ipam show -o json, with each of its flags", async () => {
  using line = new CommandLine();
  await prepared(line);
  const data = async (...flags: string[]) =>
    JSON.parse((await line.run("ipam", "show", "-o", "json", ...flags)).out) as object;
  expect(await data()).toEqual({
    pools: [{ name: "a", cidr: "10.1.0.0/28", capacity: 16, inUse: 3, reserved: 0, available: 13 }],
  });
  expect(await data("--show-blocks")).toMatchObject({
    pools: [{ blocks: [{ cidr: "10.1.0.0/29", inUse: 3 }] }],
    orphans: [],
  });
  expect(await data("--show-borrowed")).toMatchObject({ borrowed: [{ address: "10.1.0.2", node: "n2", owner: "n1" }] });
  expect(await data("--ip", "10.1.0.0")).toMatchObject({ inUse: true, handleId: "h-web", attributes: { pod: "web" } });
  expect(await data("--ip", "10.1.0.9")).toEqual({ address: "10.1.0.9", inUse: false });
  expect(await data("--show-configuration")).toMatchObject({ strictAffinity: false });
});

/** Allocates three addresses: one is used by an endpoint, one by a tunnel, and one is leaked. */
async function prepared(line: CommandLine, age = 3_600_000): Promise<void> {
  await line.given(
    pool("a", "10.1.0.0/28", "  blockSize: 29\n"),
    node("n1", "ipv4VXLANTunnelAddr: 10.1.0.1"),
    node("n2"),
  );
  await line.given(endpoint("web", "10.1.0.0"));
  const timestamp = goTimestamp(new Date(Date.now() - age));
  await withStore(line, async (_, ipam) => {
    for (const [n, pod] of ["web", "tunnel", "lost"].entries())
      await ipam.assignAddress({
        address: parseAddress(`10.1.0.${n}`),
        host: "n1",
        handleId: `h-${pod}`,
        attributes: { node: pod === "lost" ? "n2" : "n1", pod, namespace: "default", timestamp },
      });
  });
}

test("TC-C26 ipam show lists pools, with --show-blocks their blocks", async () => {
  using line = new CommandLine();
  await prepared(line);
  await line.given(pool("b", "fd00::/122"));
  const { out, code } = await line.run("ipam", "show", "--show-blocks");
  expect(code).toBe(0);
  expect(out.split("\n")).toEqual([
    "+----------+-------------+-----------+------------+--------------+-----------+",
    "| GROUPING | CIDR        | IPS TOTAL | IPS IN USE | IPS RESERVED | IPS FREE  |",
    "+----------+-------------+-----------+------------+--------------+-----------+",
    "| IP Pool  | 10.1.0.0/28 |        16 |    3 (19%) |       0 (0%) |  13 (81%) |",
    "| Block    | 10.1.0.0/29 |         8 |    3 (38%) |       0 (0%) |   5 (62%) |",
    "| IP Pool  | fd00::/122  |        64 |     0 (0%) |       0 (0%) | 64 (100%) |",
    "+----------+-------------+-----------+------------+--------------+-----------+",
    "",
  ]);
  expect((await line.run("ipam", "show")).out).not.toContain("Block");
});

test("TC-C28 reserved addresses have their own column", async () => {
  using line = new CommandLine();
  await prepared(line);
  await line.given(
    "apiVersion: projectcalico.org/v3\nkind: IPReservation\nmetadata: {name: r}\nspec: {reservedCIDRs: [10.1.0.0/30]}",
  );
  expect((await line.run("ipam", "show")).out).toContain("|        16 |    3 (19%) |      4 (25%) | 12 (75%) |");
});

test("DM-005 a reservation without a mask is rejected; a stored one is shown, honoured and can be deleted", async () => {
  using line = new CommandLine();
  await prepared(line);
  const reservation = { apiVersion: "projectcalico.org/v3", kind: "IPReservation", metadata: { name: "r" } } as const;
  const bare = { ...reservation, spec: { reservedCIDRs: ["10.1.0.9"] } };
  for (const command of ["create", "apply"])
    expect(await line.pipe(JSON.stringify(bare), command, "-f", "-")).toMatchObject({
      code: 1,
      err: expect.stringContaining("spec.reservedCIDRs[0]"),
    });
  const metadata = { name: "r", uid: crypto.randomUUID(), creationTimestamp: "2026-01-01T00:00:00Z" };
  const stored = { ...bare, metadata }; // as stored by Calico 3.28
  await line.put(stored);
  expect((await line.run("get", "ipreservation", "-o", "wide")).out).toContain("r      10.1.0.9   ");
  expect((await line.run("ipam", "show")).out).toContain("|       1 (6%) |");
  const masked = JSON.stringify({ ...reservation, spec: { reservedCIDRs: ["10.1.0.9/32"] } });
  expect(await line.pipe(masked, "apply", "-f", "-")).toMatchObject({ code: 0 });
  await line.put(stored);
  expect(await line.run("delete", "ipreservation", "r")).toMatchObject({ code: 0 });
});

test("TC-C27 ipam show --ip prints the owner of an address", async () => {
  using line = new CommandLine();
  await prepared(line);
  expect((await line.run("ipam", "show", "--ip", "10.1.0.0")).out).toMatch(
    /^IP 10\.1\.0\.0 is in use\nHandle ID: h-web\nActive Owner Attributes:\n {2}namespace: default\n {2}node: n1\n {2}pod: web\n {2}timestamp: \S+ \S+ \+0000 UTC\n$/,
  );
  expect(await line.run("ipam", "show", "--ip", "9.9.9.9")).toEqual({
    code: 0,
    out: "9.9.9.9 is not assigned\n",
    err: "",
  });
  const bad = { code: 1, out: "Error executing command: invalid IP address specified: foo\n", err: "" };
  expect(await line.run("ipam", "show", "--ip", "foo")).toEqual(bad);
});

test("TC-C27 ipam show --show-borrowed prints borrower, block and owner", async () => {
  using line = new CommandLine();
  await prepared(line);
  const { out } = await line.run("ipam", "show", "--show-borrowed");
  expect(
    out
      .split("\n")[3]
      ?.split("|")
      .map((cell) => cell.trim()),
  ).toEqual(["", "10.1.0.2", "n2", "10.1.0.0/29", "n1", "pod", "default/lost", ""]);
});

test("TC-C27 ipam show --show-borrowed counts addresses without a node, and leaves unknown users empty", async () => {
  using line = new CommandLine();
  await line.given(pool("a", "10.1.0.0/24", "  blockSize: 29\n"));
  await withStore(line, async (_, ipam) => {
    const take = (address: string, handleId: string, attributes: Record<string, string>) =>
      ipam.assignAddress({ address: parseAddress(address), host: "n1", handleId, attributes });
    await take("10.1.0.1", "h1", { node: "n2", type: "vxlanTunnelAddress" });
    await take("10.1.0.2", "h2", {});
  });
  const { out } = await line.run("ipam", "show", "--show-borrowed");
  expect(out).toContain(
    "| 10.1.0.1 | n2             | 10.1.0.0/29 | n1          | vxlanTunnelAddress |              |\n",
  );
  expect(out).toEndWith(
    "+\n\nNote: found 1 IP allocations without an explicit node association. Unable to determine if they are borrowed.\n",
  );
  expect((await line.run("ipam", "show", "--ip", "10.1.0.2")).out).toStartWith(
    "IP 10.1.0.2 is in use\nHandle ID: h2\nNo Active Owner attributes defined\n",
  );
});

test("TC-C27 ipam show --show-configuration reads and writes nothing", async () => {
  using line = new CommandLine();
  await line.given(pool("a"));
  const { out } = await line.run("ipam", "show", "--show-configuration");
  expect(out).toContain("| AutoAllocateBlocks | true  |\n| MaxBlocksPerHost   |     0 |");
  await withStore(line, async (store) => expect((await store.list({ type: "ipamConfig" })).items).toEqual([]));
});

test("TC-C30 ipam configure accepts Go's texts for booleans, and adds no fields to stored settings", async () => {
  using line = new CommandLine();
  const written = { strictAffinity: false, autoAllocateBlocks: true, maxBlocksPerHost: 0 };
  await withStore(line, async (store) => void (await store.create({ key: { type: "ipamConfig" }, value: written })));
  expect((await line.run("ipam", "configure", "--strictaffinity=True")).out).toBe(
    "Successfully set StrictAffinity to: true\n",
  );
  await withStore(line, async (_, ipam) => expect(await ipam.config()).toEqual({ ...written, strictAffinity: true }));
  expect((await line.run("ipam", "configure", "--strictaffinity=yes")).code).toBe(1);
});

test("TC-C30 TC-C31 ipam configure changes the given settings and keeps the others", async () => {
  using line = new CommandLine();
  expect(await line.run("ipam", "configure", "--strictaffinity=true", "--max-blocks-per-host", "3")).toEqual({
    code: 0,
    out: "Successfully set StrictAffinity to: true\nSuccessfully set MaxBlocksPerHost to: 3\n",
    err: "",
  });
  await line.run("ipam", "configure", "--kubevirt-ip-persistence=Disabled", "--ip-cooldown-seconds=60");
  await withStore(line, async (_, ipam) =>
    expect(await ipam.config()).toEqual({
      strictAffinity: true,
      autoAllocateBlocks: true,
      maxBlocksPerHost: 3,
      kubeVirtVmAddressPersistence: "Disabled",
      ipCooldownSeconds: 60,
    }),
  );
  expect((await line.run("ipam", "show", "--show-configuration")).out).toContain(
    "| IPCooldownSeconds            |       60 |",
  );
  expect(await line.run("ipam", "configure", "--strictaffinity=false")).toEqual({
    code: 1,
    out: "",
    err: "Error: MaxBlocksPerHost requires StrictAffinity to be enabled\n",
  });
  for (const flag of ["--strictaffinity=foo", "--kubevirt-ip-persistence=x", "--ip-cooldown-seconds=-1"])
    expect((await line.run("ipam", "configure", flag)).code).toBe(1);
  expect((await line.run("ipam", "configure")).err).toStartWith(
    "calicoctl ipam configure: at least one configuration option",
  );
});

test("TC-C29 ipam release --ip releases an address once", async () => {
  using line = new CommandLine();
  await prepared(line);
  const released = { code: 0, out: "Successfully released IP address 10.1.0.2\n", err: "" };
  expect(await line.run("ipam", "release", "--ip", "10.1.0.2")).toEqual(released);
  expect(await line.run("ipam", "release", "--ip", "10.1.0.2")).toEqual({
    code: 1,
    out: "",
    err: "IP address 10.1.0.2 is not assigned\n",
  });
  expect(await line.run("ipam", "release")).toMatchObject({ code: 2, out: "" });
});

test("TC-C33 ipam check finds leaked, shared and unallocated addresses, and exits with 3", async () => {
  using line = new CommandLine();
  await prepared(line);
  const first = await line.run("ipam", "check", "--show-problem-ips");
  expect(first.code).toBe(3);
  expect(first.out).toContain("  10.1.0.2 leaked; handle h-lost\nFound 1 IPs that are allocated in IPAM");
  expect(first.out).toEndWith("Check complete; found 1 problems.\n");
  await line.run("ipam", "release", "--ip", "10.1.0.2");
  expect((await line.run("ipam", "check")).code).toBe(0);
  await line.given(endpoint("twin", "10.1.0.0"), endpoint("wild", "10.1.0.9"), endpoint("far", "192.0.2.1"));
  const { out, code } = await line.run("ipam", "check", "--show-all-ips");
  expect(code).toBe(3);
  expect(out).toContain("10.1.0.0 has 2 owners: workload endpoint default/n1-cni-twin-eth0, workload endpoint");
  expect(out).toContain("Found 1 in-use IPs that are in active IP pools but have no corresponding IPAM allocation.");
  expect(out).toContain("Found 1 in-use IPs that are not in active IP pools.");
  expect(out).toContain("  10.1.0.0 in use: workload endpoint");
});

test("TC-C33 ipam check repairs nothing and writes no report while an entry cannot be read", async () => {
  for (const path of ["%/workloadendpoints/default/%", "%/assignment/ipv4/block/%"]) {
    using line = new CommandLine();
    await prepared(line);
    const db = new Database(line.env["CALICO_SQLITE_PATH"] ?? "");
    db.run("UPDATE version SET value = 'no JSON' WHERE path LIKE ?", [path]);
    db.close();
    const report = join(line.folder, "report");
    const { out, err, code } = await line.run("ipam", "check", "--fix", "--yes", "-o", report);
    expect(code).toBe(3);
    expect(err).toContain("Skipped: failed to parse datastore entry key=");
    expect(out).toContain(
      "\nFound 1 entries that cannot be read: until they are corrected or deleted, nothing is repaired",
    );
    expect(out).not.toContain("Released");
    expect(existsSync(report)).toBe(false);
  }
});

test("TC-C33 ipam check finds inconsistent handles, blocks and affinities, and --fix repairs them after confirmation", async () => {
  using line = new CommandLine();
  await prepared(line);
  await withStore(line, async (store) => {
    const affinity = (host: string, cidr: string) =>
      ({ type: "blockAffinity", affinityType: "host", host, cidr: cidr as Cidr }) as const;
    await store.create({ key: affinity("n2", "10.1.0.0/29"), value: { state: "pending", deleted: false } });
    await store.create({ key: affinity("gone", "10.1.0.8/29"), value: { state: "confirmed", deleted: false } });
    const handleId = "h-leak";
    await store.create({
      key: { type: "ipamHandle", handleId },
      value: { handleId, block: { "10.1.0.0/29": 1 }, deleted: false },
    });
    await store.delete({ type: "ipamHandle", handleId: "h-web" });
  });
  const found = await line.run("ipam", "check");
  expect(found.code).toBe(3);
  expect(found.out).toContain("affinity of host:n2 for block 10.1.0.0/29: the block belongs to host:n1");
  expect(found.out).toContain("affinity of host:gone for block 10.1.0.8/29: the block does not exist or has no owner");
  expect(found.out).toContain("holds 1 addresses of handle h-web, which does not count them");
  expect(found.out).toContain("Found 1 handles with no matching IPs (and 2 handles with matches).");

  expect((await line.pipe("n\n", "ipam", "check", "--fix")).out).toEndWith("[y/N] Nothing was changed.\n");
  const fixed = await line.pipe("y\n", "ipam", "check", "--fix");
  expect(fixed.out).toEndWith("Released 1 addresses, repaired 4 objects.\n");
  expect(fixed.code).toBe(0);
  expect((await line.run("ipam", "check")).code).toBe(0);
});

test("TC-C33 --fix does not release recent allocations, unless the datastore is locked", async () => {
  using line = new CommandLine();
  await prepared(line, 10_000);
  const young = await line.run("ipam", "check", "--fix", "--yes");
  expect(young.code).toBe(3);
  expect(young.out).toContain("1 leaked addresses are younger than 5 minutes");
  await line.run("datastore", "migrate", "lock");
  expect((await line.run("ipam", "check", "--fix", "--yes")).code).toBe(0);
});

test("TC-C34 ipam release --from-report releases addresses that are leaked in every report, if the reports are current", async () => {
  using line = new CommandLine();
  await prepared(line);
  const [first, second] = ["one.json", "two.json"].map((name) => join(line.folder, name)) as [string, string];
  await line.run("ipam", "check", "-o", first);
  expect((await line.run("ipam", "release", "--from-report", first)).err).toContain("datastore is not locked");
  await line.run("datastore", "migrate", "lock");
  await line.run("ipam", "check", "-o", first);
  expect(JSON.parse(readFileSync(first, "utf8"))).toMatchObject({
    datastoreLocked: true,
    allocations: { "10.1.0.2": [{ ip: "10.1.0.2", handle: "h-lost", inUse: false, borrowed: true, pod: "lost" }] },
  });
  await line.given(endpoint("found", "10.1.0.2"));
  await line.run("ipam", "check", "-o", second);
  const none = await line.run("ipam", "release", "--from-report", first, "--from-report", second);
  expect(none.out).toStartWith("Releasing 0 leaked IPs...\n");
  const text = readFileSync(first, "utf8");
  writeFileSync(second, text.replace(/"clusterGUID": "\w+"/, '"clusterGUID": "ff"'));
  expect((await line.run("ipam", "release", "--from-report", second, "--force")).err).toContain("is of cluster ff");
  const released = await line.run("ipam", "release", "--from-report", first);
  expect(released).toMatchObject({ code: 0, out: expect.stringContaining("Released 1 IPs") });
  const again = await line.run("ipam", "release", "--from-report", first);
  expect(again.out).toContain("Released 1 IPs"); // releasing a free address is not an error
});

test("TC-C32 ipam split creates equal parts with the same settings", async () => {
  using line = new CommandLine();
  await line.given(pool("a", "10.1.0.0/16", "  natOutgoing: true\n"));
  expect((await line.run("ipam", "split", "2", "--name", "a")).err).toStartWith("Datastore is not locked.");
  await line.run("datastore", "migrate", "lock");
  const { out, code } = await line.run("ipam", "split", "2", "--cidr", "10.1.0.0/16");
  expect(code).toBe(0);
  expect(out).toBe(
    "IP Pool a was successfully split into 2 smaller pools.Created split-a-0 with CIDR 10.1.0.0/17.\nCreated split-a-1 with CIDR 10.1.128.0/17.\nPlease refer to the documentation for final steps.",
  );
  const pools = await line.stored("IPPool");
  expect(pools.map((each) => [each.metadata.name, readPool(each, ignoreUnreadable)?.natOutgoing])).toEqual([
    ["split-a-0", true],
    ["split-a-1", true],
  ]);
});

test("TC-C32 an invalid split is rejected before anything is written", async () => {
  using line = new CommandLine();
  await line.given(pool("a", "10.1.0.0/28", "  blockSize: 29\n"));
  await line.run("datastore", "migrate", "lock");
  const before = await line.stored("IPPool");
  for (const args of [
    ["3", "--name", "a"],
    ["1", "--name", "a"],
    ["16", "--name", "a"],
    ["x", "--name", "a"],
    ["2", "--name", "zz"],
  ])
    expect((await line.run("ipam", "split", ...args)).code).toBe(1);
  expect((await line.run("ipam", "split", "2")).code).toBe(2);
  expect(await line.stored("IPPool")).toEqual(before);
});

test("the error for an unreadable report contains its file name", async () => {
  using line = new CommandLine();
  expect(existsSync(join(line.folder, "none"))).toBe(false);
  expect((await line.run("ipam", "release", "--from-report", join(line.folder, "none"))).err).toContain(
    "failed to read report",
  );
  expect(await line.run("ipam", "release", "--from-report", line.file("bad", "["))).toMatchObject({ code: 1 });
});
