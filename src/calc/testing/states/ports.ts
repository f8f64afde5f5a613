// States with named ports and services.
import { endpointSlice, hep, networkSet, policy, REMOTE, rule, wep } from "../build.ts";
import type { NamedState } from "../states.ts";

const WEB = { id: "web" };
const http = (port: number, protocol = "tcp") => ({ name: "http", protocol, port });
export const portStates: readonly NamedState[] = [
  {
    name: "named ports by protocol, with and without selector, negated",
    state: [
      wep("ep1", {
        nets: ["10.0.0.1/32", "fc00::1/128"],
        labels: { ...WEB },
        ports: [http(8080), http(8081, "udp"), http(9090)],
      }),
      wep("r1", { host: REMOTE, nets: ["10.0.1.1/32"], labels: { id: "db" }, ports: [http(80)] }),
      hep("h1", { host: REMOTE, addresses: ["10.2.0.1"], labels: { id: "db" }, ports: [http(81)] }),
      networkSet("set", ["10.3.0.0/24"], { id: "db" }),
      policy("p", {
        inboundRules: [
          rule({ protocol: "tcp", to: { ports: [{ name: "http" }] } }),
          rule({ protocol: "udp", to: { selector: "id == 'web'", ports: [{ name: "http" }] } }),
          rule({ protocol: "tcp", from: { selector: "id == 'db'", ports: [{ name: "http" }, { min: 1, max: 2 }] } }),
          rule({ to: { selector: "id == 'web'", notPorts: [{ name: "http" }] } }),
        ],
      }),
    ],
    want: {
      policies: ["p"],
      sets: {
        "all() | tcp:http": [
          "10.0.0.1,tcp:8080",
          "10.0.0.1,tcp:9090",
          "10.0.1.1,tcp:80",
          "10.2.0.1,tcp:81",
          "fc00::1,tcp:8080",
          "fc00::1,tcp:9090",
        ],
        "id == 'web' | udp:http": ["10.0.0.1,udp:8081", "fc00::1,udp:8081"],
        "id == 'db' | tcp:http": ["10.0.1.1,tcp:80", "10.2.0.1,tcp:81"],
        "id == 'db'": ["10.0.1.1/32", "10.2.0.1/32", "10.3.0.0/24"],
        "id == 'web' | any:http": [
          "10.0.0.1,tcp:8080",
          "10.0.0.1,tcp:9090",
          "10.0.0.1,udp:8081",
          "fc00::1,tcp:8080",
          "fc00::1,tcp:9090",
          "fc00::1,udp:8081",
        ],
        "id == 'web'": ["10.0.0.1/32", "fc00::1/128"],
      },
      endpoints: { ep1: "default(p / p)" },
    },
  },
  {
    name: "the ports of an endpoint changed",
    state: [
      wep("ep1", {
        nets: ["10.0.0.1/32"],
        labels: { ...WEB },
        ports: [http(8080), { name: "other", protocol: "tcp", port: 1 }],
      }),
      wep("r1", { host: REMOTE, nets: ["10.0.0.1/32"], labels: { id: "db" }, ports: [http(8080)] }),
      policy("p", { inboundRules: [rule({ protocol: "tcp", to: { ports: [{ name: "http" }] } })] }),
    ],
    want: {
      policies: ["p"],
      sets: { "all() | tcp:http": ["10.0.0.1,tcp:8080"] },
      endpoints: { ep1: "default(p / p)" },
    },
  },
  {
    name: "services with and without ports, from overlapping slices",
    state: [
      wep("ep1"),
      endpointSlice(
        "s1",
        "nginx",
        ["10.0.0.1", "10.0.0.2", "fc00::1", "no-address"],
        [{ port: 80 }, { protocol: "UDP", port: 53 }],
      ),
      endpointSlice("s2", "nginx", ["10.0.0.2", "10.0.0.3"], [{ port: 80 }, {}]),
      endpointSlice("s3", "other", ["10.0.0.9"], [{ port: 1 }]),
      policy("p", {
        inboundRules: [rule({ from: { service: { name: "nginx", namespace: "default" } } })],
        outboundRules: [rule({ to: { service: { name: "nginx", namespace: "default" } } })],
      }),
    ],
    want: {
      policies: ["p"],
      sets: {
        "svc default/nginx": [
          "10.0.0.1,tcp:80",
          "10.0.0.1,udp:53",
          "10.0.0.2,tcp:80",
          "10.0.0.2,udp:53",
          "10.0.0.3,tcp:80",
          "fc00::1,tcp:80",
          "fc00::1,udp:53",
        ],
        "svcnoport default/nginx": ["10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32", "fc00::1/128"],
      },
      endpoints: { ep1: "default(p / p)" },
    },
  },
  {
    name: "a slice changed its service",
    state: [
      wep("ep1"),
      endpointSlice("s1", "other", ["10.0.0.1", "10.0.0.2"], [{ port: 80 }]),
      endpointSlice("s2", "nginx", ["10.0.0.2"], [{ port: 80 }]),
      policy("p", { outboundRules: [rule({ to: { service: { name: "nginx", namespace: "default" } } })] }),
    ],
    want: {
      policies: ["p"],
      sets: { "svc default/nginx": ["10.0.0.2,tcp:80"] },
      endpoints: { ep1: "default(p / p)" },
    },
  },
];
