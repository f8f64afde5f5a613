// The nftables table for ARP packets, with either renderer.
import type { NftRuleset } from "../../kernel/index.ts";
import type { RulesConfig } from "../rules/config.ts";
import { NftTable } from "./nft-table.ts";
import { hasArpTables } from "./probe.ts";

export const ARP_TABLE = { family: "arp", name: "calico-arp" } as const;

/** Returns undefined if the kernel does not support nftables for ARP. */
export const createArpTable = (config: RulesConfig, ruleset: NftRuleset): NftTable | undefined =>
  hasArpTables(ruleset) ? new NftTable(4, config, { ref: ARP_TABLE }) : undefined;
