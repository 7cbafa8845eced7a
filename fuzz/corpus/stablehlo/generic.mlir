module @g attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 2 : i32} {
  sdy.mesh @mesh = <["data"=2, "model"=2]>
  func.func public @main(%x: tensor<2x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>, tf.aliasing_output = 0 : i32}, %n: tensor<i1>) -> (tensor<2x4xf32>, tensor<2xi32>) {
    %c = "stablehlo.constant"() {value = dense<[[1.0e-01, 0xFF800000, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0]]> : tensor<2x4xf32>} : () -> tensor<2x4xf32>
    %h = stablehlo.constant dense<"0x0000803F0000004000004040000080400000A0400000C0400000E04000000041"> : tensor<2x4xf32>
    %i = stablehlo.constant dense<1> : tensor<i64>
    %y = "stablehlo.add"(%x, %c) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %s = "stablehlo.all_reduce"(%y) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = "stablehlo.maximum"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%m) : (tensor<f32>) -> ()
    }) {replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %d = stablehlo.dynamic_slice %s, %i, %i, sizes = [1, 2] : (tensor<2x4xf32>, tensor<i64>, tensor<i64>) -> tensor<1x2xf32>
    %z = "stablehlo.if"(%n) ({
      stablehlo.return %s : tensor<2x4xf32>
    }, {
      %e = chlo.erf %h : tensor<2x4xf32> -> tensor<2x4xf32>
      stablehlo.return %e : tensor<2x4xf32>
    }) : (tensor<i1>) -> tensor<2x4xf32>
    %k:2 = stablehlo.optimization_barrier %z, %d : tensor<2x4xf32>, tensor<1x2xf32>
    %t = call @f(%k#0) : (tensor<2x4xf32>) -> tensor<2xi32>
    "func.return"(%k#0, %t) : (tensor<2x4xf32>, tensor<2xi32>) -> ()
  }
  func.func private @f(%x: tensor<2x4xf32>) -> tensor<2xi32> {
    %0 = stablehlo.slice %x [0:2, 1:4:2] : (tensor<2x4xf32>) -> tensor<2x2xf32>
    %1 = stablehlo.dot_general %x, %x, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2xf32>
    %2 = stablehlo.convert %1 : (tensor<2xf32>) -> tensor<2xi32>
    return %2 : tensor<2xi32>
  }
}
