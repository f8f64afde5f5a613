import { expect, test } from "bun:test";
import { discoverTypha, NoTypha, type ServiceSlice, TyphaPicker, usesTypha } from "./discovery.ts";

const service = { TyphaAddr: "", TyphaK8sServiceName: "calico-typha", TyphaK8sNamespace: "kube-system" };
const slice = (
  ips: readonly (readonly [ip: string, node: string, ready?: boolean])[],
  port = "calico-typha",
): ServiceSlice => ({
  ports: [
    { name: "metrics", port: 1 },
    { name: port, port: 5473 },
  ],
  endpoints: ips.map(([ip, nodeName, ready = true]) => ({ addresses: [ip], nodeName, conditions: { ready } })),
});
const discover = (slices: readonly ServiceSlice[], settings = service, random = () => 0) =>
  discoverTypha({ settings, node: "here", random, listSlices: async () => slices });

test("FC-018 a given address wins, and without either there is no Typha", async () => {
  expect(await discover([], { ...service, TyphaAddr: "1.2.3.4:5473" })).toEqual([{ address: "1.2.3.4:5473" }]);
  expect(usesTypha({ TyphaAddr: "", TyphaK8sServiceName: "" })).toBe(false);
  expect(usesTypha(service)).toBe(true);
});

test("FC-018 behind a service: our own node's first, only ready ones, IPv6 in brackets", async () => {
  const found = await discover([
    slice([
      ["10.0.0.1", "there"],
      ["10.0.0.2", "here"],
      ["10.0.0.3", "here", false],
    ]),
    slice([["fd00::1", "there"]]),
  ]);
  expect(found.map(({ address }) => address)[0]).toBe("10.0.0.2:5473");
  expect(new Set(found.map(({ address }) => address))).toEqual(
    new Set(["10.0.0.2:5473", "10.0.0.1:5473", "[fd00::1]:5473"]),
  );
});

test("FC-018 no ready endpoint with that port is an error that says so", async () => {
  const failure = discover([slice([["10.0.0.1", "there", false]]), slice([["10.0.0.2", "here"]], "other")]);
  await expect(failure).rejects.toThrow(NoTypha);
  await expect(failure).rejects.toThrow("kube-system/calico-typha");
});

test("FC-019 every attempt looks again and leaves alone what was tried, for five minutes", async () => {
  let addresses = ["a", "b"];
  let now = 0;
  let looks = 0;
  const picker = new TyphaPicker(
    async () => {
      looks++;
      return addresses.map((address) => ({ address }));
    },
    () => now,
  );
  const next = async () => (await picker.next()).address;
  expect([await next(), await next()]).toEqual(["a", "b"]);
  addresses = ["a", "b", "c"];
  expect(await next()).toBe("c");
  expect(await next()).toBe("a"); // all were tried: from the beginning
  now += 301_000;
  expect(await next()).toBe("a");
  expect(looks).toBe(5);
});
