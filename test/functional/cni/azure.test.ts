// Tests ADD and DEL with the IPAM plugin `azure-vnet-ipam`. A script of that name replaces the real plugin, which runs only in
// Azure: it records its calls and prints a given result. The stored state is read from the same files as Calico's.
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "bun:test";
import { canRun, CniHost, DIST, k8s } from "./cni-host.ts";

const PROGRAM = `#!/bin/sh
{ echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME"; cat; echo; } >> "$FAKE/calls"
[ -e "$FAKE/fail-$CNI_COMMAND" ] && { echo '{"code": 77, "msg": "no address of Azure"}'; exit 1; }
if [ "$CNI_COMMAND" = ADD ]; then cat "$FAKE/result"; fi
`;

class FakeAzureIpam {
  readonly folder: string;
  constructor(readonly host: CniHost) {
    this.folder = join(host.folder, "fake");
    mkdirSync(this.folder);
    const program = join(this.folder, "azure-vnet-ipam");
    writeFileSync(program, PROGRAM);
    chmodSync(program, 0o755);
    this.setResult("10.240.0.7/16");
  }
  setResult(...addresses: string[]): void {
    const ips = addresses.map((address) => ({ address, gateway: "10.240.0.1" }));
    const routes = [{ dst: "0.0.0.0/0", gw: "10.240.0.1" }];
    writeFileSync(join(this.folder, "result"), JSON.stringify({ cniVersion: "1.0.0", ips, routes, dns: {} }));
  }
  /** Makes a command fail until the result is disposed. */
  fail(command: string): Disposable {
    const file = join(this.folder, `fail-${command}`);
    writeFileSync(file, "");
    return { [Symbol.dispose]: () => rmSync(file) };
  }
  /** Returns the calls since the last use of this method: the command, and the `ipam` section. */
  takeCalls(): { command: string; ipam: unknown }[] {
    const file = join(this.folder, "calls");
    if (!existsSync(file)) return [];
    const lines = readFileSync(file, "utf8").trim().split("\n");
    rmSync(file);
    return lines.flatMap((line, i) =>
      i % 2 === 1 ? [] : [{ command: line.split(" ")[0]!, ipam: JSON.parse(lines[i + 1]!).ipam as unknown }],
    );
  }
  /** Returns the state folder of a network, as a path outside the test host. */
  state(network = "net1"): string {
    return join(this.host.folder, "run/azure/networks", network);
  }
  options(more: Record<string, unknown> = {}, env: Record<string, string> = {}) {
    const ipam = { type: "azure-vnet-ipam", environment: "azure" };
    return {
      conf: { ipam, ...more },
      env: { CNI_PATH: `${this.folder}:${DIST}`, FAKE: this.folder, ...env },
    };
  }
}
const json = (path: string): unknown => JSON.parse(readFileSync(path, "utf8"));
const IPAM = { type: "azure-vnet-ipam", environment: "azure" };

describe.skipIf(!canRun)("CI-036 azure-vnet-ipam", () => {
  for (const [who, args] of [
    ["container", {}],
    ["pod", k8s("shop", "web-1").env],
  ] as const)
    test(`DEL of a ${who} gets the address and subnet of its ADD, and later ADDs get the subnet`, async () => {
      await using host = await CniHost.create();
      const azure = new FakeAzureIpam(host);
      const options = azure.options({}, args);
      const [first, second] = [host.pod(), host.pod()];
      const added = await host.add(first, options);
      expect(added).toMatchObject({ code: 0, json: { ips: [{ address: "10.240.0.7/32" }] } });
      expect(azure.takeCalls()).toEqual([{ command: "ADD", ipam: IPAM }]);
      expect(json(join(azure.state(), "network.json"))).toEqual({ Name: "net1", Subnets: ["10.240.0.0/16"] });
      const file = join(azure.state(), `${first.containerId}-eth0`);
      expect(json(file)).toEqual({
        Network: "net1",
        ContainerID: first.containerId,
        Interface: "eth0",
        Addresses: ["10.240.0.7"],
      });
      azure.setResult("10.240.3.9/16");
      expect(await host.add(second, azure.options({}, who === "pod" ? k8s("shop", "web-2").env : {}))).toMatchObject({
        code: 0,
      });
      expect(azure.takeCalls()).toEqual([{ command: "ADD", ipam: { ...IPAM, subnet: "10.240.0.0/16" } }]);

      const known = { ...IPAM, ipAddress: "10.240.0.7", subnet: "10.240.0.0/16" };
      if (who === "container") {
        const check = azure.options({ prevResult: added.json });
        expect(await host.call("CHECK", first, check)).toMatchObject({ code: 0 });
        expect(azure.takeCalls()).toEqual([{ command: "CHECK", ipam: known }]);
      }
      {
        using _failure = azure.fail("DEL");
        expect(await host.del(first, options)).toMatchObject({
          code: 1,
          json: { code: 77, msg: "no address of Azure" },
        });
        expect(existsSync(file)).toBeTrue(); // without the file the address could not be released
        azure.takeCalls();
      }
      expect(await host.del(first, options)).toMatchObject({ code: 0 });
      expect(azure.takeCalls()).toEqual([{ command: "DEL", ipam: known }]);
      // The plugin is not called for a container without addresses. The network's subnet is kept for the next pod.
      expect(await host.del(first, options)).toMatchObject({ code: 0 });
      expect(azure.takeCalls()).toEqual([]);
      expect(readdirSync(azure.state()).sort()).toEqual([`${second.containerId}-eth0`, "network.json"].sort());
    });

  test("state files of Calico are used, and the plugin's error is reported unchanged", async () => {
    await using host = await CniHost.create();
    const azure = new FakeAzureIpam(host);
    const pod = host.pod();
    mkdirSync(azure.state(), { recursive: true });
    writeFileSync(join(azure.state(), "network.json"), '{"Name":"net1","Subnets":["10.240.0.0/16"]}');
    const stored = { Network: "net1", ContainerID: pod.containerId, Interface: "eth0", Addresses: ["10.240.9.9/16"] };
    writeFileSync(join(azure.state(), `${pod.containerId}-eth0`), JSON.stringify(stored));
    expect(await host.del(pod, azure.options())).toMatchObject({ code: 0 });
    expect(azure.takeCalls()).toEqual([
      { command: "DEL", ipam: { ...IPAM, ipAddress: "10.240.9.9", subnet: "10.240.0.0/16" } },
    ]);
    using _failure = azure.fail("ADD");
    expect(await host.add(host.pod(), azure.options())).toMatchObject({ code: 1, json: { code: 77 } });
    expect(readdirSync(azure.state())).toEqual(["network.json"]);
  });

  test("the address of a failed ADD is released, also if its state cannot be stored", async () => {
    await using host = await CniHost.create();
    const azure = new FakeAzureIpam(host);
    const given = { ...IPAM, ipAddress: "10.240.0.7", subnet: "10.240.0.0/16" };
    const pod = host.pod();
    pod.kernel.links.create({ name: "eth0", type: { kind: "veth", peer: { name: "taken" } } });
    expect(await host.add(pod, azure.options())).toMatchObject({ code: 1, json: { code: 999 } });
    expect(azure.takeCalls()).toEqual([
      { command: "ADD", ipam: IPAM },
      { command: "DEL", ipam: given },
    ]);
    expect(readdirSync(azure.state())).toEqual(["network.json"]);
    rmSync(azure.state(), { recursive: true });
    writeFileSync(azure.state(), "no folder");
    expect(await host.add(host.pod(), azure.options())).toMatchObject({ code: 1, json: { code: 999 } });
    rmSync(azure.state());
    mkdirSync(join(azure.state(), "network.json"), { recursive: true });
    expect(await host.add(host.pod(), azure.options())).toMatchObject({ code: 1, json: { code: 999 } });
    expect(azure.takeCalls()).toEqual([]); // the stored state cannot be read, so the plugin is not called
    expect(host.workloadLinks()).toEqual([]);
    expect((await host.all("WorkloadEndpoint")).size).toBe(0);
  });

  test("a network name that is not a file name is rejected, and an invalid state file is reported", async () => {
    await using host = await CniHost.create();
    const azure = new FakeAzureIpam(host);
    for (const name of ["..", "."]) {
      const pod = host.pod();
      for (const command of ["ADD", "DEL"])
        expect(await host.call(command, pod, azure.options({ name }))).toMatchObject({
          code: 1,
          json: { code: 7 },
        });
    }
    expect(azure.takeCalls()).toEqual([]);
    expect(existsSync(join(host.folder, "run/azure"))).toBeFalse();
    mkdirSync(azure.state(), { recursive: true });
    writeFileSync(join(azure.state(), "network.json"), '{"Subnets": "10.0.0.0/8"}');
    expect(await host.add(host.pod(), azure.options())).toMatchObject({
      code: 1,
      json: { code: 999, msg: expect.stringContaining("/var/run/calico/azure/networks/net1/network.json") },
    });
    expect(azure.takeCalls()).toEqual([]);
  });
});
