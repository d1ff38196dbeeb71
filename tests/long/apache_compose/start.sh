# One combined broker and controller; what it stores outlives a kill of its container.
set -eu
cat >/tmp/server.properties <<END
process.roles=broker,controller
node.id=$NODE_ID
controller.quorum.voters=1@kafka-1:9093,2@kafka-2:9093,3@kafka-3:9093
listeners=INTERNAL://:19092,CONTROLLER://:9093,EXTERNAL://:9092
advertised.listeners=INTERNAL://kafka-$NODE_ID:19092,EXTERNAL://localhost:$PORT
listener.security.protocol.map=INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT
inter.broker.listener.name=INTERNAL
controller.listener.names=CONTROLLER
log.dirs=/tmp/kafka
default.replication.factor=3
min.insync.replicas=2
replica.lag.time.max.ms=3000
offsets.topic.num.partitions=3
transaction.state.log.num.partitions=3
transaction.state.log.min.isr=2
group.initial.rebalance.delay.ms=0
END
export CLASSPATH='/kafka/libs/*' JAVA_TOOL_OPTIONS='-XX:+UseSerialGC -XX:TieredStopAtLevel=1'
java -Xmx128m kafka.tools.StorageTool format --ignore-formatted --cluster-id MkU3OEVBNTcwNTJENDM2Qk --config /tmp/server.properties
exec java -Xmx512m kafka.Kafka /tmp/server.properties
