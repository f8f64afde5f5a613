// Fills the kernel's connection table, like a workload that opens many connections.
import { NetworkNamespace } from "../../src/kernel/index.ts";
import { NETLINK_NETFILTER, NetlinkSocket } from "../../src/kernel/netlink/netlink-socket.ts";
import { AF_INET } from "../../src/kernel/sys/sys.ts";
import { parseAddress } from "../../src/lib/ip/ip.ts";

// linux/netfilter/nfnetlink_conntrack.h
const IPCTNL_MSG_CT_NEW = 1 << 8;
const NLM_F_CREATE_EXCL = 0x600;
const [CTA_TUPLE_ORIG, CTA_TUPLE_REPLY, CTA_TIMEOUT] = [1, 2, 7];
const [CTA_TUPLE_IP, CTA_TUPLE_PROTO] = [1, 2];
const [CTA_IP_V4_SRC, CTA_IP_V4_DST] = [1, 2];
const [CTA_PROTO_NUM, CTA_PROTO_SRC_PORT, CTA_PROTO_DST_PORT] = [1, 2, 3];
const UDP = 17;
const BATCH = 4096;

/** Adds UDP connections from one IPv4 address to many. Returns how many the kernel accepted. */
export function openFlows(namespace: string, source: string, count: number): number {
  using handle = NetworkNamespace.named(namespace);
  using socket = NetlinkSocket.open(NETLINK_NETFILTER, { namespace: handle });
  const from = parseAddress(source);
  let refused = 0;
  for (let done = 0; done < count; done += BATCH) {
    const w = socket.startBatch();
    for (let i = done; i < Math.min(count, done + BATCH); i++) {
      const to = parseAddress(`198.18.${(i >> 8) & 255}.${i & 255}`);
      const [fromPort, toPort] = [1024 + (i >> 16), 53];
      const tuple = (type: number, isReply: boolean) =>
        w.nest(type, () => {
          w.nest(CTA_TUPLE_IP, () => {
            w.address(CTA_IP_V4_SRC, isReply ? to : from);
            w.address(CTA_IP_V4_DST, isReply ? from : to);
          });
          w.nest(CTA_TUPLE_PROTO, () => {
            w.u8(CTA_PROTO_NUM, UDP);
            w.be16(CTA_PROTO_SRC_PORT, isReply ? toPort : fromPort);
            w.be16(CTA_PROTO_DST_PORT, isReply ? fromPort : toPort);
          });
        });
      w.message(IPCTNL_MSG_CT_NEW, NLM_F_CREATE_EXCL, () => {
        w.putU8(AF_INET);
        w.putZero(3);
        tuple(CTA_TUPLE_ORIG, false);
        tuple(CTA_TUPLE_REPLY, true);
        w.be32(CTA_TIMEOUT, 600);
      });
    }
    refused += socket.sendBatch(w, "add flows").length;
  }
  return count - refused;
}
