#!/bin/busybox sh
# First process of the emulated board: devices, modules, network, a work folder of limited size
# that lies in memory, or on the drive where the board has one;
# then busybox's init keeps the SSH server running and reaps what jobs leave behind.
# `disk_mb` comes from the kernel's command line.
/bin/busybox --install -s /bin
export PATH=/bin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
for module in /modules/*.ko; do insmod "$module"; done
if [ -b /dev/vda ]; then
  mount -t ext4 /dev/vda /jobs
else
  mount -t tmpfs -o "size=${disk_mb}m,mode=0700" jobs /jobs
fi
hostname board
ifconfig lo 127.0.0.1 up
tries=0
while [ ! -e /sys/class/net/eth0 ] && [ "$tries" -lt 100 ]; do sleep 0.05; tries=$((tries + 1)); done
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
for core in /sys/devices/system/cpu/cpu[1-9]*/online; do
  [ -e "$core" ] && echo 1 > "$core"  # the kernel was told to begin with one
done
echo "board: network up after $(cut -d' ' -f1 /proc/uptime) s" > /dev/console
exec /bin/busybox init
