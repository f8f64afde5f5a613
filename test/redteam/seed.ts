// Reads the seed of a run, and derives the lab's settings from it.
import { randomNumbers } from "../support/random-numbers.ts";
import type { SceneOptions } from "./scene.ts";

/** `SEED`, `DATAPLANE` (nft, iptables) and `IPV6` (yes, no) of the environment; the seed chooses what is not set. */
export function sceneOptions(
  environment: Readonly<Record<string, string | undefined>>,
): SceneOptions & { readonly seed: number } {
  const seed = Number(environment["SEED"] || Date.now() % 1_000_000);
  const random = randomNumbers(seed);
  const [isNft, isIpv6] = [random(2) === 0, random(2) === 0];
  const dataplane = environment["DATAPLANE"] || (isNft ? "nft" : "iptables");
  return {
    seed,
    dataplane: dataplane === "iptables" ? "iptables" : "nft",
    ipv6: (environment["IPV6"] || (isIpv6 ? "yes" : "no")) === "yes",
  };
}
