import { expect, test } from "bun:test";
import type { RulesConfig } from "../rules/config.ts";
import { allocateMarks } from "../rules/marks.ts";
import { filterChains } from "../rules/filter-chains.ts";
import { natChains, rawChains } from "../rules/static-chains.ts";
import { chainTextByName as text, plainConfig } from "../rules/testing.ts";

const config = (more: Partial<RulesConfig> = {}): RulesConfig =>
  plainConfig({
    marks: allocateMarks(0xffff0000, { withWireguard: true }),
    wireguardEnabled: true,
    ...more,
  });

test("FD-044 packets that arrive unencrypted are marked, so that replies are not encrypted", () => {
  const c = config({ wireguardHostEncryption: true });
  expect(text(rawChains(c, 4), "cali-PREROUTING", "raw", c).slice(0, 2)).toEqual([
    "--jump MARK --set-mark 0/0x1b0000",
    "--jump cali-wireguard-incoming-mark",
  ]);
  expect(text(rawChains(c, 4), "cali-wireguard-incoming-mark", "raw", c)).toEqual([
    "--in-interface lo --jump RETURN",
    "--in-interface wireguard.cali --jump RETURN",
    "--in-interface wg-v6.cali --jump RETURN",
    "--in-interface cali+ --jump RETURN",
    "--jump MARK --set-mark 0x200000/0x200000",
  ]);
  // Without host encryption nothing jumps there.
  const plain = config();
  expect(text(rawChains(plain, 4), "cali-PREROUTING", "raw", plain).join()).not.toContain("wireguard");
});

test("FD-056 WireGuard packets are allowed on the port of their family, and traffic into the device is masqueraded", () => {
  const both = config({ wireguardEnabledV6: true });
  for (const [version, port] of [
    [4, 51820],
    [6, 51821],
  ] as const) {
    const comment = (routing: string) => `-m comment --comment "Allow ${routing} IPv${version} Wireguard packets"`;
    const chains = filterChains(both, version);
    expect(text(chains, "cali-INPUT", "filter", both, version)).toContain(
      `${comment("incoming")} -p 17 -m multiport --destination-ports ${port} -m addrtype --dst-type LOCAL --jump ACCEPT`,
    );
    expect(text(chains, "cali-OUTPUT", "filter", both, version)).toContain(
      `${comment("outgoing")} -p 17 -m multiport --destination-ports ${port} -m addrtype --src-type LOCAL --jump ACCEPT`,
    );
  }
  const v4 = config();
  expect(text(filterChains(v4, 6), "cali-INPUT", "filter", v4, 6).join()).not.toContain("Wireguard");
  expect(text(natChains(v4, 4), "cali-POSTROUTING", "nat", v4).at(-1)).toContain("--out-interface wireguard.cali");
});
