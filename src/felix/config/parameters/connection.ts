// Where the datastore and Typha are.
// Columns: type, default, meaning, flags (L local only, D a bad value is fatal, N refuses `none`, ! applied live).
import { row } from "../parameter.ts";
import { choice, existingFile, hostAndPort, hostname, seconds, text, urls } from "../value-types.ts";

export const connectionParameters = {
  // --- Datastore connection and Typha ---
  DatastoreType: row(
    choice("kubernetes", "etcdv3", "sqlite"),
    "",
    "datastore driver; unset = chosen as by every program: etcd if its endpoints are known, else Kubernetes, else SQLite",
    "LDN",
  ),
  FelixHostname: row(hostname, "", "node name; default = OS hostname, lower-cased; fallback `HOSTNAME`", "LN"),
  EtcdAddr: row(hostAndPort, "127.0.0.1:2379", "etcd address when EtcdEndpoints unset", "L"),
  EtcdScheme: row(choice("http", "https"), "http", "scheme for EtcdAddr", "L"),
  EtcdEndpoints: row(urls, "", "comma list of URLs; wins over EtcdAddr", "L"),
  EtcdKeyFile: row(existingFile, "", "etcd client key", "L"),
  EtcdCertFile: row(existingFile, "", "etcd client cert", "L"),
  EtcdCaFile: row(existingFile, "", "etcd CA", "L"),
  TyphaAddr: row(hostAndPort, "", "explicit Typha; wins over service lookup", "L"),
  TyphaK8sServiceName: row(text, "", "find Typha via this Service", "L"),
  TyphaK8sNamespace: row(text, "kube-system", "namespace of that Service", "LN"),
  TyphaReadTimeout: row(seconds, "30", "no data this long → restart", "L"),
  TyphaWriteTimeout: row(seconds, "10", "write timeout", "L"),
  TyphaKeyFile: row(existingFile, "", "client key", "L"),
  TyphaCertFile: row(existingFile, "", "client cert", "L"),
  TyphaCAFile: row(existingFile, "", "CA bundle", "L"),
  TyphaCN: row(text, "", "expected server CN", "L"),
  TyphaURISAN: row(text, "", "expected server URI SAN", "L"),
} as const;
