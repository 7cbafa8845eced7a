module @jit_norms attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x6x32xf32>, %arg1: tensor<32xf32>, %arg2: tensor<32xf32>) -> (tensor<4x6x32xf32> {jax.result_info = "result[0]"}, tensor<4x6x32xf32> {jax.result_info = "result[1]"}, tensor<4x6x32xf32> {jax.result_info = "result[2]"}, tensor<4x6x32xbf16> {jax.result_info = "result[3]"}) {
    %0 = stablehlo.multiply %arg0, %arg0 : tensor<4x6x32xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<4x6x32xf32>, tensor<f32>) -> tensor<4x6xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<4x6xf32>) -> tensor<4x6x1xf32>
    %cst_0 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<4x6x1xf32>
    %4 = stablehlo.divide %2, %3 : tensor<4x6x1xf32>
    %cst_1 = stablehlo.constant dense<9.99999997E-7> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<4x6x1xf32>
    %6 = stablehlo.add %4, %5 : tensor<4x6x1xf32>
    %7 = stablehlo.rsqrt %6 : tensor<4x6x1xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1, 2] : (tensor<4x6x1xf32>) -> tensor<4x6x32xf32>
    %9 = stablehlo.multiply %arg0, %8 : tensor<4x6x32xf32>
    %10 = stablehlo.broadcast_in_dim %arg1, dims = [2] : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %11 = stablehlo.broadcast_in_dim %10, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<4x6x32xf32>
    %12 = stablehlo.multiply %9, %11 : tensor<4x6x32xf32>
    %13 = stablehlo.reshape %arg0 : (tensor<4x6x32xf32>) -> tensor<4x6x4x8xf32>
    %14 = call @standardize(%13) : (tensor<4x6x4x8xf32>) -> tensor<4x6x4x8xf32>
    %15 = stablehlo.reshape %14 : (tensor<4x6x4x8xf32>) -> tensor<4x6x32xf32>
    %16 = stablehlo.convert %arg0 : (tensor<4x6x32xf32>) -> tensor<4x6x32xbf16>
    %17 = stablehlo.convert %16 : (tensor<4x6x32xbf16>) -> tensor<4x6x32xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %18 = stablehlo.reduce(%17 init: %cst_2) applies stablehlo.add across dimensions = [1, 2] : (tensor<4x6x32xf32>, tensor<f32>) -> tensor<4xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0] : (tensor<4xf32>) -> tensor<4x1x1xf32>
    %cst_3 = stablehlo.constant dense<1.920000e+02> : tensor<f32>
    %20 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<4x1x1xf32>
    %21 = stablehlo.divide %19, %20 : tensor<4x1x1xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2] : (tensor<4x1x1xf32>) -> tensor<4x6x32xf32>
    %23 = stablehlo.subtract %17, %22 : tensor<4x6x32xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %24 = call @_std(%17, %c) : (tensor<4x6x32xf32>, tensor<i32>) -> tensor<4x1x1xf32>
    %25 = stablehlo.broadcast_in_dim %24, dims = [0, 1, 2] : (tensor<4x1x1xf32>) -> tensor<4x6x32xf32>
    %26 = stablehlo.divide %23, %25 : tensor<4x6x32xf32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %27 = stablehlo.reduce(%arg0 init: %cst_4) applies stablehlo.add across dimensions = [2] : (tensor<4x6x32xf32>, tensor<f32>) -> tensor<4x6xf32>
    %28 = stablehlo.broadcast_in_dim %27, dims = [0, 1] : (tensor<4x6xf32>) -> tensor<4x6x1xf32>
    %cst_5 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %29 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<4x6x1xf32>
    %30 = stablehlo.divide %28, %29 : tensor<4x6x1xf32>
    %31 = stablehlo.broadcast_in_dim %30, dims = [0, 1, 2] : (tensor<4x6x1xf32>) -> tensor<4x6x32xf32>
    %32 = stablehlo.subtract %arg0, %31 : tensor<4x6x32xf32>
    %c_6 = stablehlo.constant dense<0> : tensor<i32>
    %33 = call @_var_0(%arg0, %c_6) : (tensor<4x6x32xf32>, tensor<i32>) -> tensor<4x6x1xf32>
    %cst_7 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %34 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<4x6x1xf32>
    %35 = stablehlo.add %33, %34 : tensor<4x6x1xf32>
    %36 = stablehlo.rsqrt %35 : tensor<4x6x1xf32>
    %37 = stablehlo.broadcast_in_dim %36, dims = [0, 1, 2] : (tensor<4x6x1xf32>) -> tensor<4x6x32xf32>
    %38 = stablehlo.multiply %32, %37 : tensor<4x6x32xf32>
    %39 = stablehlo.broadcast_in_dim %arg1, dims = [2] : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %40 = stablehlo.broadcast_in_dim %39, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<4x6x32xf32>
    %41 = stablehlo.multiply %38, %40 : tensor<4x6x32xf32>
    %42 = stablehlo.broadcast_in_dim %arg2, dims = [2] : (tensor<32xf32>) -> tensor<1x1x32xf32>
    %43 = stablehlo.broadcast_in_dim %42, dims = [0, 1, 2] : (tensor<1x1x32xf32>) -> tensor<4x6x32xf32>
    %44 = stablehlo.add %41, %43 : tensor<4x6x32xf32>
    %45 = stablehlo.convert %26 : (tensor<4x6x32xf32>) -> tensor<4x6x32xbf16>
    return %44, %12, %15, %45 : tensor<4x6x32xf32>, tensor<4x6x32xf32>, tensor<4x6x32xf32>, tensor<4x6x32xbf16>
  }
  func.func private @standardize(%arg0: tensor<4x6x4x8xf32>) -> tensor<4x6x4x8xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [3] : (tensor<4x6x4x8xf32>, tensor<f32>) -> tensor<4x6x4xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1, 2] : (tensor<4x6x4xf32>) -> tensor<4x6x4x1xf32>
    %cst_0 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<4x6x4x1xf32>
    %3 = stablehlo.divide %1, %2 : tensor<4x6x4x1xf32>
    %4 = chlo.square %arg0 : tensor<4x6x4x8xf32> -> tensor<4x6x4x8xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %5 = stablehlo.reduce(%4 init: %cst_1) applies stablehlo.add across dimensions = [3] : (tensor<4x6x4x8xf32>, tensor<f32>) -> tensor<4x6x4xf32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1, 2] : (tensor<4x6x4xf32>) -> tensor<4x6x4x1xf32>
    %cst_2 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %7 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<4x6x4x1xf32>
    %8 = stablehlo.divide %6, %7 : tensor<4x6x4x1xf32>
    %9 = chlo.square %3 : tensor<4x6x4x1xf32> -> tensor<4x6x4x1xf32>
    %10 = stablehlo.subtract %8, %9 : tensor<4x6x4x1xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %11 = call @clip(%10, %c) : (tensor<4x6x4x1xf32>, tensor<i32>) -> tensor<4x6x4x1xf32>
    %12 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2, 3] : (tensor<4x6x4x1xf32>) -> tensor<4x6x4x8xf32>
    %13 = stablehlo.subtract %arg0, %12 : tensor<4x6x4x8xf32>
    %cst_3 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<4x6x4x1xf32>
    %15 = stablehlo.add %11, %14 : tensor<4x6x4x1xf32>
    %16 = stablehlo.rsqrt %15 : tensor<4x6x4x1xf32>
    %17 = stablehlo.broadcast_in_dim %16, dims = [0, 1, 2, 3] : (tensor<4x6x4x1xf32>) -> tensor<4x6x4x8xf32>
    %18 = stablehlo.multiply %13, %17 : tensor<4x6x4x8xf32>
    return %18 : tensor<4x6x4x8xf32>
  }
  func.func private @clip(%arg0: tensor<4x6x4x1xf32>, %arg1: tensor<i32>) -> tensor<4x6x4x1xf32> {
    %0 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4x6x4x1xf32>
    %2 = stablehlo.maximum %1, %arg0 : tensor<4x6x4x1xf32>
    return %2 : tensor<4x6x4x1xf32>
  }
  func.func private @_std(%arg0: tensor<4x6x32xf32>, %arg1: tensor<i32>) -> tensor<4x1x1xf32> {
    %0 = call @_var(%arg0, %arg1) : (tensor<4x6x32xf32>, tensor<i32>) -> tensor<4x1x1xf32>
    %1 = stablehlo.sqrt %0 : tensor<4x1x1xf32>
    return %1 : tensor<4x1x1xf32>
  }
  func.func private @_var(%arg0: tensor<4x6x32xf32>, %arg1: tensor<i32>) -> tensor<4x1x1xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [1, 2] : (tensor<4x6x32xf32>, tensor<f32>) -> tensor<4xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<4xf32>) -> tensor<4x1x1xf32>
    %cst_0 = stablehlo.constant dense<1.920000e+02> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<4x1x1xf32>
    %3 = stablehlo.divide %1, %2 : tensor<4x1x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<4x1x1xf32>) -> tensor<4x6x32xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<4x6x32xf32>
    %6 = chlo.square %5 : tensor<4x6x32xf32> -> tensor<4x6x32xf32>
    %7 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<f32>
    %cst_1 = stablehlo.constant dense<1.920000e+02> : tensor<f32>
    %8 = stablehlo.subtract %cst_1, %7 : tensor<f32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.reduce(%6 init: %cst_2) applies stablehlo.add across dimensions = [1, 2] : (tensor<4x6x32xf32>, tensor<f32>) -> tensor<4xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0] : (tensor<4xf32>) -> tensor<4x1x1xf32>
    %11 = stablehlo.broadcast_in_dim %8, dims = [] : (tensor<f32>) -> tensor<4x1x1xf32>
    %12 = stablehlo.divide %10, %11 : tensor<4x1x1xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %13 = stablehlo.compare GT, %8, %cst_3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %cst_4 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %14 = call @_where(%13, %12, %cst_4) : (tensor<i1>, tensor<4x1x1xf32>, tensor<f32>) -> tensor<4x1x1xf32>
    return %14 : tensor<4x1x1xf32>
  }
  func.func private @_where(%arg0: tensor<i1>, %arg1: tensor<4x1x1xf32>, %arg2: tensor<f32>) -> tensor<4x1x1xf32> {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4x1x1xf32>
    %2 = stablehlo.select %arg0, %arg1, %1 : tensor<i1>, tensor<4x1x1xf32>
    return %2 : tensor<4x1x1xf32>
  }
  func.func private @_var_0(%arg0: tensor<4x6x32xf32>, %arg1: tensor<i32>) -> tensor<4x6x1xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<4x6x32xf32>, tensor<f32>) -> tensor<4x6xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<4x6xf32>) -> tensor<4x6x1xf32>
    %cst_0 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<4x6x1xf32>
    %3 = stablehlo.divide %1, %2 : tensor<4x6x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<4x6x1xf32>) -> tensor<4x6x32xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<4x6x32xf32>
    %6 = chlo.square %5 : tensor<4x6x32xf32> -> tensor<4x6x32xf32>
    %7 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<f32>
    %cst_1 = stablehlo.constant dense<3.200000e+01> : tensor<f32>
    %8 = stablehlo.subtract %cst_1, %7 : tensor<f32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.reduce(%6 init: %cst_2) applies stablehlo.add across dimensions = [2] : (tensor<4x6x32xf32>, tensor<f32>) -> tensor<4x6xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1] : (tensor<4x6xf32>) -> tensor<4x6x1xf32>
    %11 = stablehlo.broadcast_in_dim %8, dims = [] : (tensor<f32>) -> tensor<4x6x1xf32>
    %12 = stablehlo.divide %10, %11 : tensor<4x6x1xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %13 = stablehlo.compare GT, %8, %cst_3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %cst_4 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %14 = call @_where_1(%13, %12, %cst_4) : (tensor<i1>, tensor<4x6x1xf32>, tensor<f32>) -> tensor<4x6x1xf32>
    return %14 : tensor<4x6x1xf32>
  }
  func.func private @_where_1(%arg0: tensor<i1>, %arg1: tensor<4x6x1xf32>, %arg2: tensor<f32>) -> tensor<4x6x1xf32> {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4x6x1xf32>
    %2 = stablehlo.select %arg0, %arg1, %1 : tensor<i1>, tensor<4x6x1xf32>
    return %2 : tensor<4x6x1xf32>
  }
}
