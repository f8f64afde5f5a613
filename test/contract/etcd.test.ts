import { openDatastore } from "../../src/datastore/index.ts";
import { EtcdServer } from "../support/etcd-server.ts";
import { contract, type Driver } from "./contract.ts";

const start =
  (oneShot: boolean): Driver["start"] =>
  async (onUnreadable) => {
    const server = await EtcdServer.start({ tls: true });
    const store = await openDatastore(server.config, { onUnreadable, oneShot });
    const other = await openDatastore(server.config);
    return {
      store,
      other,
      putRaw: async (path, text) => {
        server.etcdctl("put", "--", path, text);
      },
      compact: async (revision) => {
        server.etcdctl("compact", revision);
      },
      clear: async () => {
        server.etcdctl("del", "--prefix", "/calico/");
      },
      stop: async () => {
        for (const open of [store, other]) await open.close();
        await server[Symbol.asyncDispose]();
      },
    };
  };

contract({ name: "etcdv3 over gRPC and TLS", lacks: new Set(), start: start(false) });
contract({ name: "etcdv3 one-shot over the JSON gateway and TLS", lacks: new Set(["watch"]), start: start(true) });
