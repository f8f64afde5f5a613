import { expect, test } from "bun:test";
import { parseAddress } from "../../lib/ip/ip.ts";
import { ADDRESS_ARGUMENTS, parseCniArguments } from "./arguments.ts";

test("CI-007 pod, namespace and requested address are read", () =>
  expect(
    parseCniArguments(
      "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns1;K8S_POD_NAME=p1;K8S_POD_INFRA_CONTAINER_ID=c;IP=10.0.0.9",
      false,
    ),
  ).toEqual({ podNamespace: "ns1", podName: "p1", ip: parseAddress("10.0.0.9") }));

test("CI-007 calico ignores unknown arguments, calico-ipam only with IgnoreUnknown", () => {
  expect(parseCniArguments("FOO=bar", true)).toEqual({});
  expect(() => parseCniArguments("FOO=bar", false)).toThrow('ARGS: unknown args ["FOO=bar"]');
  expect(parseCniArguments("IgnoreUnknown=1;FOO=bar", false)).toEqual({});
  expect(parseCniArguments("IgnoreUnknown=True;FOO=bar", false)).toEqual({});
  expect(() => parseCniArguments("FOO=bar;IgnoreUnknown=0", true)).toThrow("ARGS: unknown args");
});

const broken = [
  { text: "FOO", message: 'ARGS: invalid pair "FOO"' },
  { text: "A=b=c", message: 'ARGS: invalid pair "A=b=c"' },
  { text: "A=b;", message: 'ARGS: invalid pair ""' },
  { text: "IgnoreUnknown=maybe", message: "want 1, true, 0 or false" },
  { text: "IP=foo", message: "invalid IP address: foo" },
];
for (const { text, message } of broken)
  test(`CI-007 ${text} is rejected even if unknown arguments are ignored`, () =>
    expect(() => parseCniArguments(text, true)).toThrow(message));

test("CI-007 empty values are treated as missing", () =>
  expect(parseCniArguments("K8S_POD_NAME=;IP=", false)).toEqual({}));

test("CI-007 the address arguments do not include the pod's name", () => {
  expect(() => parseCniArguments("K8S_POD_NAME=p1", false, ADDRESS_ARGUMENTS)).toThrow("ARGS: unknown args");
  expect(parseCniArguments("IgnoreUnknown=1;K8S_POD_NAME=p1", false, ADDRESS_ARGUMENTS)).toEqual({ podName: "p1" });
});
